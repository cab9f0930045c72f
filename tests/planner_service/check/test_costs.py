"""Shows that costs are evaluated as the contract says: lines between points, along the nearest two outside, above 0."""

from __future__ import annotations

import pytest
from dip.planner.v1 import planner_pb2 as pb

from planner_service.check.costs import LayerFacts, UnknownStrategyError, Way, chunk_cost, duration_us, whole_bytes


def way(*points: tuple[int, float, int, int]) -> Way:
    """Return a way through points of units, forward time, activation bytes and split activation bytes."""
    return Way.of(
        [
            pb.CostPoint(units=units, forward_us=time, activation_bytes=kept, split_activation_bytes=split)
            for units, time, kept, split in points
        ],
        pb.AttentionCost(forward_us=0.5, backward_weight_us=2),
    )


@pytest.mark.parametrize(
    ("units", "forward_us"),
    [(10, 30), (15, 40), (20, 50), (30, 90), (35, 110), (5, 20), (1, 12)],
)
def test_between_points_and_outside_of_them(units: int, forward_us: float) -> None:
    cost = way((10, 30, 0, 0), (20, 50, 0, 0), (30, 90, 0, 0)).at(units, 0)
    assert cost.forward_us == pytest.approx(forward_us)


def test_one_point_is_proportional() -> None:
    assert way((10, 30, 7, 0)).at(25, 0)[:1] == (75,)
    assert way((10, 30, 7, 0)).at(25, 0).stored_bytes == 17.5


def test_a_line_never_goes_below_nothing() -> None:
    assert way((10, 30, 0, 0), (20, 10, 0, 0)).at(40, 0).forward_us == 0


def test_attention_costs_squared_units() -> None:
    cost = way((10, 30, 0, 0)).at(10, 58)
    assert (cost.forward_us, cost.input_us, cost.weight_us) == (30 + 29, 0, 116)


def test_split_bytes_are_those_stored_where_none_are_given() -> None:
    cost = way((10, 0, 100, 0), (20, 0, 200, 500)).at(15, 0)
    assert (cost.stored_bytes, cost.split_bytes) == (150, 300)


def test_layers_add_up_each_in_its_way() -> None:
    lean = pb.MemoryStrategy(name="recompute", points=[pb.CostPoint(units=1, forward_us=7)])
    run = pb.LayerRun(count=3, cost=pb.LayerCost(points=[pb.CostPoint(units=1, forward_us=2)], strategies=[lean]))
    layers = [LayerFacts.of(run)] * 3
    assert chunk_cost(layers, ["store", "recompute", "store"], 10, 100).forward_us == 20 + 70 + 20
    with pytest.raises(UnknownStrategyError, match="no strategy 'offload'"):
        chunk_cost(layers, ["store", "offload", "store"], 10, 100)


@pytest.mark.parametrize(
    ("work_us", "speed", "expected"),
    [(0, 1, 1), (0.2, 1, 1), (10, 1, 10), (10.0000001, 1, 10), (10.1, 1, 11), (10, 0.5, 20), (10, 3, 4)],
)
def test_durations_are_rounded_up_to_whole_microseconds(work_us: float, speed: float, expected: int) -> None:
    assert duration_us(work_us, speed) == expected


def test_bytes_are_rounded_up_once() -> None:
    assert (whole_bytes(0), whole_bytes(10.0), whole_bytes(10.0000001), whole_bytes(10.5)) == (0, 10, 10, 11)
