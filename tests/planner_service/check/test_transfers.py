"""Shows that every rule of the transfers is held: matched, in place, in one order for each pair of ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from dip.planner.v1 import planner_pb2 as pb
from tiny_plan import tiny_plan, tiny_request, transfer

from planner_service.check import check_plan

if TYPE_CHECKING:
    from collections.abc import Callable


def act(plan: pb.Plan, rank: int, n: int) -> pb.Action:
    return plan.ranks[rank].actions[n]


def order(plan: pb.Plan, rank: int, *positions: int) -> None:
    """List a rank's actions in another order."""
    actions = list(plan.ranks[rank].actions)
    made = [pb.Action.FromString(actions[n].SerializeToString()) for n in positions]
    del plan.ranks[rank].actions[:]
    plan.ranks[rank].actions.extend(made)


FIRST_IMAGE = "activation from sub-microbatch 0, chunk 0, to 2, chunk 0"

BROKEN: dict[str, tuple[Callable[[pb.Plan], object], str]] = {
    "send left out": (lambda p: p.ranks[0].actions.pop(1), f"missing: send of the {FIRST_IMAGE}"),
    "receive left out": (lambda p: p.ranks[1].actions.pop(0), f"missing: receive of the {FIRST_IMAGE}"),
    "send twice": (
        lambda p: order(p, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7),
        f"rank 0, action 2: send of the {FIRST_IMAGE} is there twice",
    ),
    "nobody needs it": (
        lambda p: p.ranks[1].actions.append(transfer(pb.ACTION_KIND_SEND_ACTIVATION, 0, 0, 10, 17)),
        "with rank 0, it is of 0 with 1",
    ),
    "unknown sub-microbatch": (
        lambda p: setattr(act(p, 0, 1), "sub_microbatch", 9),
        "rank 0, action 1: nothing needs a send of the activation from sub-microbatch 9",
    ),
    "another consumer": (
        lambda p: setattr(act(p, 0, 1), "consumer_sub_microbatch", 1),
        "nothing needs a send of the activation from sub-microbatch 0, chunk 0, to 1",
    ),
    "another payload": (
        lambda p: setattr(act(p, 0, 1), "kind", pb.ACTION_KIND_SEND_GRADIENT),
        "nothing needs a send of the gradient from sub-microbatch 0",
    ),
    "module of another": (lambda p: setattr(act(p, 0, 1), "module", "language"), "rank 0, action 1: nothing needs"),
    "consumer of another": (lambda p: setattr(act(p, 1, 0), "consumer_module", ""), "rank 1, action 0: nothing needs"),
    "another peer": (lambda p: setattr(act(p, 1, 0), "peer", 1), "with rank 1, it is of 1 with 0"),
    "leaves early": (
        lambda p: setattr(act(p, 0, 1), "start_us", 9),
        f"send of the {FIRST_IMAGE} at 9..17, it travels at 10..17",
    ),
    "arrives late": (
        lambda p: setattr(act(p, 1, 0), "end_us", 18),
        f"receive of the {FIRST_IMAGE} at 10..18, it travels at 10..17",
    ),
    "send after other compute": (
        lambda p: order(p, 0, 0, 2, 1, 3, 4, 5, 6, 7),
        f"rank 0, action 2: the send of the {FIRST_IMAGE} does not stand right after its producer",
    ),
    "send before its producer": (
        lambda p: order(p, 0, 1, 0, 2, 3, 4, 5, 6, 7),
        "does not stand right after its producer",
    ),
    "receive after compute that outlasts the producer": (
        lambda p: order(p, 0, 0, 1, 2, 3, 4, 6, 5, 7),
        "rank 0, action 6: the receive of the gradient from sub-microbatch 2, chunk 0, to 1, chunk 0 stands after "
        "compute until 236, its data leaves at 199",
    ),
    "sends in another order": (
        lambda p: order(p, 1, 0, 1, 2, 3, 5, 4),
        "rank 1 sends in another order than rank 0 receives",
    ),
    "receives in another order": (
        lambda p: order(p, 1, 1, 0, 2, 3, 4, 5),
        "rank 0 sends in another order than rank 1 receives",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_a_fault(name: str) -> None:
    breaks, says = BROKEN[name]
    plan = tiny_plan()
    breaks(plan)
    faults = check_plan(tiny_request(), plan).faults
    assert any(says in fault for fault in faults), faults


def test_several_sends_of_one_producer_may_stand_in_the_order_of_the_receives() -> None:
    plan = tiny_plan()
    order(plan, 1, 0, 1, 2, 3, 5, 4)
    order(plan, 0, 0, 1, 2, 3, 5, 4, 6, 7)
    assert check_plan(tiny_request(), plan).faults == ()


def test_a_receive_may_be_issued_early() -> None:
    plan = tiny_plan()
    order(plan, 0, 0, 1, 2, 3, 4, 5, 6, 7)
    assert check_plan(tiny_request(), plan).faults == ()
