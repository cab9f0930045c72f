"""Layer costs, number by number, as the contract's comments state them."""

from __future__ import annotations

import pytest
from dip.costs import ZERO, Cost, CostCurve, LayerTable, duration_us, kept_bytes
from dip.planner.v1 import planner_pb2 as pb
from hypothesis import given, settings
from hypothesis import strategies as st

NO_ATTENTION = pb.AttentionCost()


def point(units: int, forward_us: float, activation_bytes: int = 0, split_activation_bytes: int = 0) -> pb.CostPoint:
    return pb.CostPoint(
        units=units,
        forward_us=forward_us,
        backward_input_us=10 * forward_us,
        backward_weight_us=100 * forward_us,
        activation_bytes=activation_bytes,
        split_activation_bytes=split_activation_bytes,
    )


def forward_us(points: list[pb.CostPoint], units: int) -> float:
    return CostCurve(points, NO_ATTENTION).at(units, 0).forward_us


THREE = [point(10, 5.0), point(20, 7.0), point(40, 15.0)]


@pytest.mark.parametrize(
    ("units", "expected"),
    [
        (10, 5.0),
        (20, 7.0),
        (40, 15.0),
        (15, 6.0),  # between the first two
        (25, 9.0),  # between the last two
        (5, 4.0),  # below: along the line of the first two
        (50, 19.0),  # above: along the line of the last two
    ],
)
def test_between_points_and_beyond_them_cost_is_linear(units: int, expected: float) -> None:
    assert forward_us(THREE, units) == expected


def test_one_point_is_proportional() -> None:
    assert [forward_us([point(8, 4.0)], units) for units in (2, 8, 80)] == [1.0, 4.0, 40.0]


def test_a_line_never_goes_below_0() -> None:
    steep = [point(10, 1.0), point(20, 5.0)]
    falling = [point(10, 5.0), point(20, 1.0)]
    assert forward_us(steep, 7) == 0.0
    assert forward_us(falling, 30) == 0.0
    assert forward_us(falling, 22) == pytest.approx(0.2)


def test_attention_adds_squares_to_the_clamped_line() -> None:
    attention = pb.AttentionCost(forward_us=0.5, backward_input_us=0.25, backward_weight_us=0.125)
    cost = CostCurve([point(10, 5.0), point(20, 1.0)], attention).at(30, 500)
    assert (cost.forward_us, cost.backward_input_us, cost.backward_weight_us) == (250.0, 125.0, 62.5)
    assert (cost.activation_bytes, cost.split_activation_bytes) == (0.0, 0.0)


def test_every_column_has_its_own_line() -> None:
    cost = CostCurve([point(10, 1.0, 100, 300), point(20, 2.0, 300, 500)], NO_ATTENTION).at(15, 0)
    assert cost == Cost(
        forward_us=1.5,
        backward_input_us=15.0,
        backward_weight_us=150.0,
        activation_bytes=200.0,
        split_activation_bytes=400.0,
    )


def test_a_point_without_split_activation_bytes_keeps_as_before_the_split() -> None:
    """Point by point: the line between one with and one without joins 300 and 200."""
    cost = CostCurve([point(10, 1.0, 100, 300), point(20, 2.0, 200)], NO_ATTENTION).at(15, 0)
    assert (cost.activation_bytes, cost.split_activation_bytes) == (150.0, 250.0)


@pytest.mark.parametrize(
    ("work_us", "speed", "expected"),
    [
        (0.0, 1.0, 1),  # no task takes nothing
        (0.2, 1.0, 1),
        (7.0, 1.0, 7),
        (7.0000005, 1.0, 7),  # within the slack of sums of floats
        (7.00001, 1.0, 8),
        (7.0, 0.5, 14),
        (7.0, 2.0, 4),
        (0.1 + 0.2, 0.1, 3),  # 3.0000000000000004
    ],
)
def test_durations_round_up(work_us: float, speed: float, expected: int) -> None:
    assert duration_us(work_us, speed) == expected


@pytest.mark.parametrize(("size", "expected"), [(0.0, 0), (0.5, 1), (10.0, 10), (10.0000001, 10), (10.1, 11)])
def test_kept_bytes_round_up_once(size: float, expected: int) -> None:
    assert kept_bytes(size) == expected


def test_layers_add_up_before_they_are_rounded() -> None:
    third = Cost(forward_us=1 / 3, activation_bytes=1 / 3)
    total = ZERO.plus(third, 3)
    assert (duration_us(total.forward_us, 1.0), kept_bytes(total.activation_bytes)) == (1, 1)


def test_a_table_knows_every_way_and_refuses_others() -> None:
    cost = pb.LayerCost(
        points=[point(10, 1.0)],
        attention=pb.AttentionCost(forward_us=1.0),
        strategies=[
            pb.MemoryStrategy(name="recompute", points=[point(10, 3.0)]),
            pb.MemoryStrategy(name="mine", points=[point(10, 5.0)], attention=pb.AttentionCost(forward_us=2.0)),
        ],
    )
    table = LayerTable(cost)
    assert table.strategies == ("store", "recompute", "mine")
    # Each way has its own attention: that of "store" does not pass on.
    assert [table.at(name, 10, 7).forward_us for name in table.strategies] == [8.0, 3.0, 19.0]
    with pytest.raises(KeyError):
        table.at("offload", 10, 7)


@pytest.mark.parametrize(("units", "middle"), [([7], 7), ([1, 2], 2), ([1, 2, 3], 2)])
def test_the_middle_point_is_one_that_was_measured(units: list[int], middle: int) -> None:
    assert LayerTable(pb.LayerCost(points=[point(u, 1.0) for u in units])).middle_units == middle


@settings(deadline=None)
@given(
    points=st.dictionaries(st.integers(1, 1000), st.floats(0, 1e6), min_size=2, max_size=6),
    units=st.integers(1, 3000),
)
def test_a_line_passes_through_its_points_and_stays_between_neighbours(points: dict[int, float], units: int) -> None:
    known = sorted(points)
    listed = [point(u, points[u]) for u in known]
    assert all(forward_us(listed, u) == pytest.approx(points[u], abs=1e-6) for u in known)
    found = forward_us(listed, units)
    assert found >= 0
    below, above = [u for u in known if u <= units], [u for u in known if u >= units]
    if below and above:
        ends = points[below[-1]], points[above[0]]
        assert min(ends) * (1 - 1e-9) - 1e-6 <= found <= max(ends) * (1 + 1e-9) + 1e-6
