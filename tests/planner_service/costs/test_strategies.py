"""Shows what recomputing and offloading a layer cost, and what each of them keeps when."""

from __future__ import annotations

import pytest
from dip.planner.v1 import planner_pb2 as pb

from planner_service.costs.strategies import offload, recompute


def stored(units: int = 100, *, forward: float = 10.0, given: float = 14.0, weight: float = 9.0) -> pb.LayerCost:
    point = pb.CostPoint(
        units=units,
        forward_us=forward,
        backward_input_us=given,
        backward_weight_us=weight,
        activation_bytes=20 * units,
    )
    return pb.LayerCost(points=[point], attention=pb.AttentionCost(forward_us=0.1, backward_input_us=0.25))


def test_recompute_runs_the_forward_once_more_before_the_input_half() -> None:
    made = recompute(stored(), input_bytes=2.0)
    (point,) = made.points
    assert made.name == "recompute"
    assert (point.forward_us, point.backward_input_us, point.backward_weight_us) == (10.0, 24.0, 9.0)
    assert (point.activation_bytes, point.split_activation_bytes) == (200, 2000)
    assert (made.attention.forward_us, made.attention.backward_input_us) == (0.1, 0.35)


@pytest.mark.parametrize(
    ("host_bytes", "overlap", "split", "forward", "given"),
    [
        (1000.0, 1.0, False, 10.0, 14.0),  # 2 us: hidden
        (160.0, 1.0, False, 12.5, 14.0),  # 12.5 us: longer than the forward, hidden in the backward
        (100.0, 1.0, False, 20.0, 14.0),  # 20 us: hidden in both halves of the backward together
        (100.0, 1.0, True, 20.0, 20.0),  # the weight half may run much later
        (50.0, 1.0, False, 40.0, 31.0),  # 40 us, of which the weight half hides 9
        (100.0, 0.5, False, 25.0, 22.5),  # 20 us, of which 5 are hidden, and 11.5
        (100.0, 0.0, False, 30.0, 34.0),  # between layers: nothing is hidden
    ],
)
def test_offload_takes_what_its_copies_take_longer(
    host_bytes: float, overlap: float, split: bool, forward: float, given: float
) -> None:
    made = offload(stored(), host_bytes=host_bytes, overlap=overlap, split_backward=split)
    (point,) = made.points
    assert made.name == "offload"
    assert (point.forward_us, point.backward_input_us, point.backward_weight_us) == (forward, given, 9.0)
    assert (point.activation_bytes, point.split_activation_bytes) == (0, 2000)
    assert made.attention == stored().attention


def test_storing_is_left_as_it_was() -> None:
    cost = stored()
    recompute(cost, input_bytes=2.0)
    offload(cost, host_bytes=1.0, overlap=1.0, split_backward=True)
    assert cost == stored()
