"""Shows that the efficient size is the smallest one that keeps 95% of the best throughput, against trying them all."""

from __future__ import annotations

import cases
import pytest
from dip.chunk_costs import layers_cost
from dip.costs import STORE
from dip.job import Job
from dip.planner.v1 import planner_pb2 as pb
from hypothesis import given, settings
from hypothesis import strategies as st

from planner_service.costs.efficient import KEPT_SHARE, efficient_units


def one_module(*points: tuple[int, float], attention_us: float = 0.0, frozen: bool = False) -> pb.JobSpec:
    cost = pb.LayerCost(attention=pb.AttentionCost(forward_us=attention_us, backward_input_us=attention_us))
    for units, time_us in points:
        cost.points.add(units=units, forward_us=time_us, backward_input_us=time_us, backward_weight_us=time_us)
    module = pb.Module(name="m", layers=[pb.LayerRun(count=2, cost=cost)], frozen=frozen)
    return pb.JobSpec(model=pb.Model(modules=[module]), cluster=pb.Cluster(ranks=1))


def found(spec: pb.JobSpec, *, instance_units: float = 1.0, backward: bool = True) -> int:
    module = Job.from_spec(spec).modules[0]
    return efficient_units(spec.model.modules[0], module, instance_units=instance_units, backward=backward)


def tried(spec: pb.JobSpec, *, instance_units: int) -> int:
    """Try every size up to the largest point."""
    module = Job.from_spec(spec).modules[0]
    each_us = {}
    for units in range(1, spec.model.modules[0].layers[0].cost.points[-1].units + 1):
        cost = layers_cost(module, 0, ((STORE, 2),), units=units, squares=units * instance_units)
        each_us[units] = (cost.forward_us + cost.backward_input_us + cost.backward_weight_us) / units
    allowed = min(each_us.values()) / KEPT_SHARE
    return next(units for units, taken in each_us.items() if taken <= allowed)


def test_a_fixed_time_makes_small_sizes_slow() -> None:
    # 100 us and 1 us for each unit, best at 10,000 units: 1.01 us each; 100 / u + 1 <= 1.01 / 0.95
    assert found(one_module((100, 200.0), (10_000, 10_100.0))) == 1584


def test_time_in_proportion_needs_no_size() -> None:
    assert found(one_module((1000, 1000.0))) == 1


def test_attention_hides_the_fixed_time() -> None:
    points = (100, 200.0), (10_000, 10_100.0)
    alone = found(one_module(*points))
    with_attention = found(one_module(*points, attention_us=0.01), instance_units=500)
    assert 1 < with_attention < alone


def test_only_what_runs_counts() -> None:
    cost = pb.LayerCost()
    cost.points.add(units=10, forward_us=10.0, backward_input_us=20.0)
    cost.points.add(units=1000, forward_us=1000.0, backward_input_us=1010.0)
    spec = pb.JobSpec(
        model=pb.Model(modules=[pb.Module(name="m", layers=[pb.LayerRun(count=1, cost=cost)])]),
        cluster=pb.Cluster(ranks=1),
    )
    assert found(spec, backward=False) == 1
    assert found(spec) > 10
    spec.model.modules[0].frozen = True  # nothing before it trains: no backward at all
    assert found(spec) == 1


def test_layers_of_no_cost() -> None:
    assert found(one_module((10, 0.0), (20, 0.0))) == 1


@settings(max_examples=60, deadline=None)
@given(
    times=st.lists(st.floats(1.0, 1000.0), min_size=1, max_size=5),
    steps=st.lists(st.integers(1, 60), min_size=5, max_size=5),
    instance_units=st.integers(1, 40),
    attention_us=st.sampled_from([0.0, 0.05, 2.0]),
)
def test_it_is_the_first_of_all_sizes(
    times: list[float], steps: list[int], instance_units: int, attention_us: float
) -> None:
    units = [sum(steps[: i + 1]) for i in range(len(times))]
    spec = one_module(*zip(units, times, strict=True), attention_us=attention_us)
    assert found(spec, instance_units=instance_units) == tried(spec, instance_units=instance_units)


@pytest.mark.parametrize("instance_units", [1.0, 64.0])
def test_a_module_of_several_runs(instance_units: float) -> None:
    spec = cases.job()
    spec.model.modules[0].layers.add(count=3, cost=cases.layer_cost(2.0, overhead_us=500.0), static_bytes=1)
    alone = found(cases.job(), instance_units=instance_units)
    assert found(spec, instance_units=instance_units) > alone
