"""Shows that every rule of the compute actions is held: what must run, where, in which way, and for how long."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tiny_plan import (
    BACKWARD,
    INPUT_HALF,
    WEIGHT_HALF,
    compute,
    split_tiny_plan,
    split_tiny_request,
    tiny_plan,
    tiny_request,
)

from planner_service.check import check_plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from dip.planner.v1 import planner_pb2 as pb


def act(plan: pb.Plan, rank: int, n: int) -> pb.Action:
    return plan.ranks[rank].actions[n]


BROKEN: dict[str, tuple[Callable[[pb.Plan], object], str]] = {
    "rank left out": (lambda p: p.ranks.pop(), "schedules of ranks [0], not of 0 to 1"),
    "rank twice": (lambda p: p.ranks.append(p.ranks[0]), "rank 0 has two schedules"),
    "unknown rank": (lambda p: setattr(p.ranks[1], "rank", 2), "schedules of ranks [0, 2]"),
    "no kind": (lambda p: setattr(act(p, 0, 0), "kind", 0), "kind 0 of sub-microbatch 0"),
    "unknown kind": (lambda p: setattr(act(p, 0, 0), "kind", 77), "kind 77 of sub-microbatch 0"),
    "unknown sub-microbatch": (lambda p: setattr(act(p, 0, 0), "sub_microbatch", 5), "does not belong here"),
    "module of another": (lambda p: setattr(act(p, 0, 0), "module", "language"), "does not belong here"),
    "unknown chunk": (lambda p: setattr(act(p, 0, 0), "chunk", 1), "chunk 1 of 'vision' does not belong here"),
    "negative chunk": (lambda p: setattr(act(p, 0, 0), "chunk", -1), "chunk -1 of 'vision' does not belong here"),
    "chunk of another rank": (
        lambda p: p.ranks[1].actions.append(act(p, 0, 0)),
        "rank 1, action 6: kind 1 of sub-microbatch 0",
    ),
    "twice": (
        lambda p: p.ranks[1].actions.append(act(p, 1, 3)),
        "backward of sub-microbatch 2, chunk 0 is there twice",
    ),
    "missing": (lambda p: p.ranks[1].actions.pop(3), "missing: backward of sub-microbatch 2, chunk 0"),
    "half that the job does not allow": (
        lambda p: p.ranks[1].actions.append(compute(WEIGHT_HALF, 2, 199, 239)),
        "not needed: backward_weight of sub-microbatch 2, chunk 0",
    ),
    "two at a time": (lambda p: setattr(act(p, 0, 2), "start_us", 9), "starts at 9, the rank is busy until 10"),
    "too short": (
        lambda p: setattr(act(p, 1, 3), "end_us", 197),
        "backward of sub-microbatch 2, chunk 0 takes 118 us, its layers cost 120",
    ),
    "too long": (lambda p: setattr(act(p, 0, 7), "end_us", 298), "takes 62 us, its layers cost 60"),
    "no time": (lambda p: setattr(act(p, 0, 0), "end_us", 0), "takes 0 us, its layers cost 10"),
    "unknown strategy": (
        lambda p: act(p, 1, 2).strategies.add(name="forget", num_layers=1),
        "sub-microbatch 2, chunk 0: forward and backward have other strategies",
    ),
    "strategies of more layers": (
        lambda p: act(p, 1, 2).strategies.add(name="store", num_layers=2),
        "strategies for 2 layers, the chunk has 1",
    ),
    "strategies of a billion layers": (
        lambda p: act(p, 1, 2).strategies.add(name="store", num_layers=2**31 - 1),
        "strategies for 2147483647 layers, the chunk has 1",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_a_fault(name: str) -> None:
    breaks, says = BROKEN[name]
    plan = tiny_plan()
    breaks(plan)
    faults = check_plan(tiny_request(), plan).faults
    assert any(says in fault for fault in faults), faults


def test_a_strategy_that_the_layer_lacks_is_a_fault() -> None:
    plan = tiny_plan()
    for n in (2, 3):
        act(plan, 1, n).strategies.add(name="forget", num_layers=1)
    faults = check_plan(tiny_request(), plan).faults
    assert "sub-microbatch 2, chunk 0: no strategy 'forget', there are ['recompute', 'store']" in faults


def test_recompute_takes_longer_and_keeps_less() -> None:
    plan = tiny_plan()
    for n in (2, 3):
        act(plan, 1, n).strategies.add(name="recompute", num_layers=1)
    faults = check_plan(tiny_request(), plan).faults
    assert "backward of sub-microbatch 2, chunk 0 takes 120 us, its layers cost 160" in faults
    assert "rank 1 states a peak of 600 bytes, it holds 240" in faults


def test_stored_layers_may_be_named_or_not() -> None:
    plan = tiny_plan()
    act(plan, 1, 2).strategies.add(name="store", num_layers=1)
    assert check_plan(tiny_request(), plan).faults == ()


def test_a_split_backward_needs_both_halves() -> None:
    plan = split_tiny_plan()
    plan.ranks[1].actions.pop()
    faults = check_plan(split_tiny_request(), plan).faults
    assert "missing: backward_weight of sub-microbatch 2, chunk 0" in faults


def test_a_backward_is_whole_or_split_but_not_both() -> None:
    plan = split_tiny_plan()
    plan.ranks[1].actions.append(compute(BACKWARD, 2, 199, 319))
    faults = check_plan(split_tiny_request(), plan).faults
    assert "not needed: backward_input of sub-microbatch 2, chunk 0" in faults
    assert "not needed: backward_weight of sub-microbatch 2, chunk 0" in faults


def test_a_frozen_module_has_no_weight_half() -> None:
    request, plan = split_tiny_request(), split_tiny_plan()
    request.job.model.modules[1].frozen = True
    assert "not needed: backward_weight of sub-microbatch 2, chunk 0" in check_plan(request, plan).faults
    plan.ranks[1].actions.pop()
    assert not any(fault.startswith(("missing", "not needed")) for fault in check_plan(request, plan).faults)


def test_a_frozen_module_that_nothing_trains_before_has_no_backward() -> None:
    request = tiny_request()
    request.job.model.modules[0].frozen = True
    faults = check_plan(request, tiny_plan()).faults
    assert "not needed: backward of sub-microbatch 0, chunk 0" in faults
    assert "not needed: backward of sub-microbatch 1, chunk 0" in faults


def test_a_batch_without_backward_has_none() -> None:
    request = tiny_request()
    request.batch.forward_only = True
    faults = check_plan(request, tiny_plan()).faults
    assert len([fault for fault in faults if fault.startswith("not needed: backward")]) == 3


def test_a_slow_rank_takes_longer() -> None:
    request = tiny_request()
    request.job.cluster.rank_speed.extend([1.0, 0.5])
    faults = check_plan(request, tiny_plan()).faults
    assert "forward of sub-microbatch 2, chunk 0 takes 40 us, its layers cost 80" in faults


def test_the_input_half_alone_gives_the_gradient() -> None:
    plan = split_tiny_plan()
    assert plan.ranks[1].actions[3].kind == INPUT_HALF
    assert check_plan(split_tiny_request(), plan).faults == ()
