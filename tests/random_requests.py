"""Random requests of every shape that the contract allows, small enough to plan many of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from dip.planner.v1 import planner_pb2 as pb
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypothesis.strategies import DrawFn

MAX_UNITS = 400
T = TypeVar("T")


@st.composite
def cost_points(draw: DrawFn) -> list[pb.CostPoint]:
    """One to three points, not always rising."""
    units = sorted(draw(st.sets(st.integers(1, MAX_UNITS), min_size=1, max_size=3)))
    times = st.integers(0, 1600).map(lambda eighths: eighths / 8)
    return [
        pb.CostPoint(
            units=u,
            forward_us=draw(times),
            backward_input_us=draw(times),
            backward_weight_us=draw(times),
            activation_bytes=draw(st.integers(0, 50 * u)),
            split_activation_bytes=draw(st.sampled_from([0, 0, 30 * u])),
        )
        for u in units
    ]


@st.composite
def layer_costs(draw: DrawFn) -> pb.LayerCost:
    """Costs of a layer with none to two other ways to run it."""
    names = draw(st.sampled_from([(), ("recompute",), ("recompute", "offload")]))
    squared = draw(st.sampled_from([0.0, 0.0, 0.0007]))
    return pb.LayerCost(
        points=draw(cost_points()),
        attention=pb.AttentionCost(forward_us=squared, backward_input_us=2 * squared),
        strategies=[pb.MemoryStrategy(name=name, points=draw(cost_points())) for name in names],
    )


@st.composite
def modules(draw: DrawFn, max_modules: int = 3) -> list[pb.Module]:
    """A DAG: every module but the last feeds at least one that comes later."""
    many = draw(st.integers(1, max_modules))
    listed: list[pb.Module] = []
    for m in range(many):
        layers = [
            pb.LayerRun(
                count=draw(st.integers(1, 4)), cost=draw(layer_costs()), static_bytes=draw(st.integers(0, 2000))
            )
            for _ in range(draw(st.integers(1, 2)))
        ]
        listed.append(
            pb.Module(
                name=f"m{m}",
                layers=layers,
                frozen=draw(st.booleans()),
                output_bytes_per_unit=draw(st.integers(0, 64)),
                result_bytes_per_unit=draw(st.integers(0, 64)),
            )
        )
    for m in range(many - 1):
        for consumer in draw(st.sets(st.integers(m + 1, many - 1), min_size=1)):
            listed[consumer].inputs.append(f"m{m}")
    return listed


@st.composite
def batches(draw: DrawFn, listed: Sequence[pb.Module], max_microbatches: int = 4) -> pb.Batch:
    """Microbatches of none to three samples; a sample has what its later modules may consume."""
    consumers = {m.name: [other.name for other in listed if m.name in other.inputs] for m in listed}
    batch = pb.Batch(forward_only=draw(st.sampled_from([False, False, False, True])))
    for _ in range(draw(st.integers(1, max_microbatches))):
        microbatch = batch.microbatches.add()
        for _ in range(draw(st.integers(0, 3))):
            sample = microbatch.samples.add()
            for module in reversed(listed):
                last = module.name == listed[-1].name
                if last or (any(c in sample.instances for c in consumers[module.name]) and draw(st.booleans())):
                    units = draw(st.lists(st.integers(1, MAX_UNITS), min_size=1, max_size=1 if last else 3))
                    sample.instances[module.name].units.extend(units)
    return batch


@st.composite
def clusters(draw: DrawFn, *, limited: bool | None = None) -> pb.Cluster:
    """One to four ranks, of any speeds and limits."""
    ranks = draw(st.integers(1, 4))
    limits = st.sampled_from([0, 4_000, 10_000, 30_000, 100_000, 300_000])
    memory = draw(st.one_of(st.just([]), st.lists(limits, min_size=1, max_size=1), _each(limits, ranks)))
    return pb.Cluster(
        ranks=ranks,
        memory_bytes=[] if limited is False else memory,
        link_latency_us=draw(st.sampled_from([0, 1, 10])),
        link_bytes_per_us=draw(st.sampled_from([0, 7, 1000])),
        rank_speed=draw(st.one_of(st.just([]), _each(st.sampled_from([0.5, 1.0, 1.25]), ranks))),
    )


def _each(values: st.SearchStrategy[T], ranks: int) -> st.SearchStrategy[list[T]]:
    return st.lists(values, min_size=ranks, max_size=ranks)


@st.composite
def plan_requests(draw: DrawFn, *, limited: bool | None = None, max_evaluations: int = 30) -> pb.PlanRequest:
    """Requests with no partition; ``limited=False``: without memory limits."""
    listed = draw(modules())
    cluster = draw(clusters(limited=limited))
    options = pb.PlannerOptions(split_backward=draw(st.booleans()), max_evaluations=max_evaluations)
    for module in listed:
        layers = sum(run.count for run in module.layers)
        if layers >= cluster.ranks and draw(st.integers(0, 3)) == 0:
            options.segments[module.name] = draw(st.integers(1, layers // cluster.ranks))
        if draw(st.integers(0, 2)) == 0:
            options.sub_microbatch_units[module.name] = draw(st.integers(1, 2 * MAX_UNITS))
    return pb.PlanRequest(
        job=pb.JobSpec(model=pb.Model(modules=listed), cluster=cluster, options=options),
        batch=draw(batches(listed)),
    )


@st.composite
def partitions(draw: DrawFn, spec: pb.JobSpec) -> pb.Partition:
    """Any cut of every module, its chunks on any ranks; keeps to segments that are asked for."""
    made = pb.Partition()
    for module in spec.model.modules:
        layers = sum(run.count for run in module.layers)
        asked = spec.options.segments.get(module.name, 0) * spec.cluster.ranks
        many = asked or draw(st.integers(1, layers))
        borders = sorted(draw(st.permutations(range(1, layers)))[: many - 1])
        for index, (first, last) in enumerate(zip([0, *borders], [*borders, layers], strict=True)):
            rank = index % spec.cluster.ranks if asked else draw(st.integers(0, spec.cluster.ranks - 1))
            made.chunks.add(module=module.name, index=index, rank=rank, first_layer=first, num_layers=last - first)
    return made
