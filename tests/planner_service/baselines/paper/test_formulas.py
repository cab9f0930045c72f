"""Shows the paper's formulas: K_i segments of equal layers, B_i by the 95% rule, even sub-microbatches."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from cases import batch, job, module
from corners import one_module, three_ranks
from dip.job import Job
from dip.parts import instances_of
from dip.planner.v1 import planner_pb2 as pb
from dip.validation import validate_partition
from hypothesis import given
from hypothesis import strategies as st

from planner_service.baselines.paper.segments import (
    Latency,
    equal_partition,
    latencies_us,
    module_times_us,
    segment_counts,
)
from planner_service.baselines.paper.sizes import efficient_sizes, even_groups, even_parts


@pytest.mark.parametrize(
    ("latencies", "layers", "counts"),
    [
        ([100.0, 350.0], [32, 63], [1, 3]),
        ([350.0, 100.0], [63, 32], [3, 1]),
        ([100.0, 399.9, 200.0], [32, 64, 64], [1, 3, 2]),
        ([10.0, 10_000.0], [32, 28], [1, 7]),  # 28 layers on 4 ranks
        ([0.0, 50.0, 100.0], [8, 8, 8], [1, 1, 2]),  # a module without work is not the cheapest
        ([1.0, 100.0], [8, 3], [1, 1]),  # fewer layers than ranks
    ],
)
def test_segments_are_the_floor_of_the_ratio_of_latencies_as_far_as_layers_go(
    latencies: list[float], layers: list[int], counts: list[int]
) -> None:
    assert segment_counts(latencies, layers, 4) == counts


def test_segments_that_the_job_asks_for_stand() -> None:
    assert segment_counts([100.0, 350.0], [32, 63], 4, {0: 2}) == [2, 3]


def test_chunks_are_of_equal_layers_in_a_loop_and_ranks_get_alike() -> None:
    spec = job([module("vision", 63), module("language", 33, inputs=["vision"])], ranks=4)
    partition = equal_partition(Job.from_spec(spec), [2, 1], [63.0, 33.0])
    validate_partition(spec, partition)
    for name, least in (("vision", 7), ("language", 8)):
        chunks = [chunk for chunk in partition.chunks if chunk.module == name]
        assert [chunk.rank for chunk in chunks] == [i % 4 for i in range(len(chunks))]
        assert {chunk.num_layers for chunk in chunks} == {least, least + 1}
    layers = Counter({rank: 0 for rank in range(4)})
    for chunk in partition.chunks:
        layers[chunk.rank] += chunk.num_layers
    assert set(layers.values()) == {24}


def test_a_module_of_fewer_layers_than_ranks_goes_where_least_is_to_do() -> None:
    spec = job([module("vision", 2), module("language", 6, inputs=["vision"])], ranks=4)
    partition = equal_partition(Job.from_spec(spec), [1, 1], [2.0, 6.0])
    assert [chunk.rank for chunk in partition.chunks if chunk.module == "vision"] == [2, 3]


def linear(overhead_us: float, us_per_unit: float) -> pb.JobSpec:
    """One layer whose forward and backward together take ``3 * (overhead + rate * units)``."""
    points = [
        pb.CostPoint(units=u, **dict.fromkeys(("forward_us", "backward_input_us", "backward_weight_us"), t))
        for u in (10, 10_000)
        for t in [overhead_us + us_per_unit * u]
    ]
    run = pb.LayerRun(count=4, cost=pb.LayerCost(points=points))
    return pb.JobSpec(model=pb.Model(modules=[pb.Module(name="m", layers=[run])]), cluster=pb.Cluster(ranks=2))


@pytest.mark.parametrize("instance", [1, 7, 500])
def test_a_size_keeps_95_percent_of_the_best_throughput_and_one_instance_less_does_not(instance: int) -> None:
    spec = linear(100.0, 1.0)
    (size,) = efficient_sizes(spec, Job.from_spec(spec), batch([[{"m": [instance] * 4}]]))
    assert size % instance == 0

    def throughput(units: int) -> float:
        return units / (100.0 + units)

    goal = 0.95 * throughput(10_000)
    assert throughput(size) >= goal > throughput(size - instance)


def test_a_size_is_at_most_what_the_job_asks_for() -> None:
    spec = linear(100.0, 1.0)
    spec.options.sub_microbatch_units["m"] = 64
    assert efficient_sizes(spec, Job.from_spec(spec), batch([[{"m": [8] * 4}]])) == [64]


def test_latencies_are_of_whole_or_of_sub_microbatches() -> None:
    request = one_module()
    parsed = Job.from_spec(request.job)
    parts = even_parts(parsed, request.batch, [200])
    total = module_times_us(parsed, parts, forward_only=False)[0]
    many = len(request.batch.microbatches)
    whole = latencies_us(parsed, parts, Latency.MICROBATCH, num_microbatches=many, forward_only=False)
    sub = latencies_us(parsed, parts, Latency.SUB_MICROBATCH, num_microbatches=many, forward_only=False)
    assert whole == [pytest.approx(total / many)]
    assert sub == [pytest.approx(total / len(parts))]
    assert len(parts) > many


def test_a_microbatch_is_cut_into_the_units_over_the_size_rounded_up() -> None:
    request = three_ranks()
    parsed = Job.from_spec(request.job)
    parts = even_parts(parsed, request.batch, [100, 10_000])
    for j, microbatch in enumerate(request.batch.microbatches):
        vision = instances_of(microbatch, parsed.modules[0], range(len(microbatch.samples)))
        units = sum(one[2] for one in vision)
        cut = [part for part in parts if (part.module, part.microbatch) == (0, j)]
        assert len(cut) <= math.ceil(units / 100)
        assert sum(part.units for part in cut) == units
        assert sum((part.module, part.microbatch) == (1, j) for part in parts) == 1


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.data())
def test_groups_are_consecutive_and_within_one_instance_of_even(units: list[int], data: st.DataObject) -> None:
    many = data.draw(st.integers(1, len(units)))
    instances = [(i, 0, size) for i, size in enumerate(units)]
    groups = even_groups(instances, many)
    assert [one for group in groups for one in group] == instances
    assert len(groups) <= many
    for group in groups:
        assert sum(one[2] for one in group) <= sum(units) / many + max(units)
