"""Random batches of a few microbatches, modules and ranks, small enough to try everything."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dip.job import Job
from dip.parts import group_parts, pieces_of
from dip.planner.v1 import planner_pb2 as pb
from dip.work import Part, Work, chunks_of

if TYPE_CHECKING:
    import random


def _layer(rng: random.Random) -> pb.LayerCost:
    """A layer of small whole times; another way trades its forward against its backward, or is worse."""

    def point() -> pb.CostPoint:
        f, i, w = (rng.randint(0, 9) for _ in range(3))
        return pb.CostPoint(units=1, forward_us=f, backward_input_us=i, backward_weight_us=w)

    other = [pb.MemoryStrategy(name="other", points=[point()])] if rng.random() < 0.3 else []
    return pb.LayerCost(points=[point()], strategies=other)


def _module(rng: random.Random, m: int) -> pb.Module:
    runs = [pb.LayerRun(count=1, cost=_layer(rng)) for _ in range(rng.choice([1, 1, 2, 3]))]
    return pb.Module(name=f"m{m}", layers=runs, frozen=rng.random() < 0.25, output_bytes_per_unit=rng.randint(0, 3))


def tiny_request(rng: random.Random) -> pb.PlanRequest:
    """One to three modules, ranks and microbatches; chunks anywhere."""
    many, ranks = rng.randint(1, 3), rng.randint(1, 3)
    request = pb.PlanRequest()
    modules = request.job.model.modules
    modules.extend(_module(rng, m) for m in range(many))
    for m in range(many - 1):
        for consumer in rng.sample(range(m + 1, many), rng.randint(1, many - 1 - m)):
            modules[consumer].inputs.append(f"m{m}")
    cluster, options = request.job.cluster, request.job.options
    cluster.ranks = ranks
    cluster.link_latency_us = rng.choice([0, 0, 1, 4])
    cluster.link_bytes_per_us = rng.choice([0, 2])
    cluster.rank_speed.extend(rng.choice([0.5, 1.0, 1.0, 1.5]) for _ in range(ranks))
    options.split_backward, options.max_evaluations = rng.random() < 0.4, 400
    request.batch.forward_only = rng.random() < 0.1
    for _ in range(rng.randint(1, 3)):
        sample = request.batch.microbatches.add().samples.add()
        for m in reversed(range(many)):
            taken = m == many - 1 or any(
                f"m{m}" in modules[c].inputs and f"m{c}" in sample.instances for c in range(many)
            )
            if taken and (m == many - 1 or rng.random() < 0.8):
                sample.instances[f"m{m}"].units.append(rng.randint(1, 3))
    for module in modules:
        borders = [0, *sorted(rng.sample(range(1, len(module.layers)), rng.randint(0, len(module.layers) - 1)))]
        for index, (first, last) in enumerate(zip(borders, [*borders[1:], len(module.layers)], strict=True)):
            request.partition.chunks.add(
                module=module.name, index=index, rank=rng.randrange(ranks), first_layer=first, num_layers=last - first
            )
    return request


def work_of(request: pb.PlanRequest, parts: list[Part] | None = None) -> Work:
    """Stage tasks of a request, of whole microbatches unless parts are given."""
    job = Job.from_spec(request.job)
    groups = [[range(len(pieces_of(job, microbatch)))] for microbatch in request.batch.microbatches]
    return Work(
        job=job,
        forward_only=request.batch.forward_only,
        chunks=chunks_of(job, request.partition),
        parts=group_parts(job, request.batch, groups) if parts is None else parts,
    )
