"""Builders of small jobs, batches and requests: what tests vary is an argument. Every builder makes a new message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dip.planner.v1 import planner_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LINK_LATENCY_US = 5
LINK_BYTES_PER_US = 1000
STATIC_BYTES = 1_000_000
KEPT_BYTES_PER_UNIT = 400
UNITS = (64, 256, 1024)

Sample = dict[str, list[int]]


def layer_cost(us_per_unit: float = 0.5, overhead_us: float = 20.0, attention_us: float = 0.0) -> pb.LayerCost:
    """Cost of a layer that grows linearly and can recompute, with whole numbers at the points only."""

    def point(units: int, recompute: bool) -> pb.CostPoint:
        forward, kept = overhead_us + us_per_unit * units, KEPT_BYTES_PER_UNIT * units
        return pb.CostPoint(
            units=units,
            forward_us=forward,
            backward_input_us=2 * forward if recompute else forward,
            backward_weight_us=forward * 0.75,
            activation_bytes=kept // 16 if recompute else kept,
            split_activation_bytes=kept if recompute else 0,
        )

    return pb.LayerCost(
        points=[point(units, recompute=False) for units in UNITS],
        attention=pb.AttentionCost(forward_us=attention_us, backward_input_us=2 * attention_us),
        strategies=[
            pb.MemoryStrategy(
                name="recompute",
                points=[point(units, recompute=True) for units in UNITS],
                attention=pb.AttentionCost(forward_us=attention_us, backward_input_us=3 * attention_us),
            )
        ],
    )


def module(
    name: str,
    layers: int,
    *,
    inputs: Sequence[str] = (),
    us_per_unit: float = 0.5,
    frozen: bool = False,
    result_bytes_per_unit: int = 0,
) -> pb.Module:
    """One module of identical layers."""
    run = pb.LayerRun(count=layers, cost=layer_cost(us_per_unit, attention_us=0.0001), static_bytes=STATIC_BYTES)
    return pb.Module(
        name=name,
        inputs=inputs,
        layers=[run],
        frozen=frozen,
        output_bytes_per_unit=64,
        result_bytes_per_unit=result_bytes_per_unit,
    )


def job(
    modules: Sequence[pb.Module] | None = None,
    *,
    ranks: int = 4,
    memory_bytes: Sequence[int] = (),
    rank_speed: Sequence[float] = (),
    split_backward: bool = False,
    segments: Mapping[str, int] | None = None,
    sub_microbatch_units: Mapping[str, int] | None = None,
) -> pb.JobSpec:
    """Return a job; of vision (8 layers) into language (12 layers) where no modules are given."""
    if modules is None:
        modules = [module("vision", 8, result_bytes_per_unit=16), module("language", 12, inputs=["vision"])]
    cluster = pb.Cluster(
        ranks=ranks,
        memory_bytes=memory_bytes,
        link_latency_us=LINK_LATENCY_US,
        link_bytes_per_us=LINK_BYTES_PER_US,
        rank_speed=rank_speed,
    )
    options = pb.PlannerOptions(
        segments=segments or {}, sub_microbatch_units=sub_microbatch_units or {}, split_backward=split_backward
    )
    return pb.JobSpec(model=pb.Model(modules=modules), cluster=cluster, options=options)


def batch(microbatches: Sequence[Sequence[Sample]], *, forward_only: bool = False) -> pb.Batch:
    """Return the batch whose samples have instances of these units for each module."""
    return pb.Batch(
        microbatches=[
            pb.Microbatch(
                samples=[
                    pb.Sample(instances={name: pb.Instances(units=units) for name, units in sample.items()})
                    for sample in samples
                ]
            )
            for samples in microbatches
        ],
        forward_only=forward_only,
    )


def documents(num_microbatches: int) -> list[list[Sample]]:
    """Microbatches of two documents each, one with images of several sizes and one of text alone."""
    return [
        [
            {"vision": [96, 160 + 32 * (j % 3), 64][: 1 + j % 3], "language": [300 + 10 * j]},
            {"language": [180 + 25 * (j % 4)]},
        ]
        for j in range(num_microbatches)
    ]


def request(
    spec: pb.JobSpec, microbatches: Sequence[Sequence[Sample]], *, forward_only: bool = False
) -> pb.PlanRequest:
    """Return the request for a plan of these microbatches."""
    return pb.PlanRequest(job=spec, batch=batch(microbatches, forward_only=forward_only))
