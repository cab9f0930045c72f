"""Shows that ``dip check`` and the independent checker give one verdict, on plans and on mutations of them."""

from __future__ import annotations

import dataclasses
import random
from typing import TYPE_CHECKING

import corners
import pytest
from any_field import SMALL_INTEGERS, change_any_field
from dip.planner.v1 import planner_pb2 as pb
from mutations import PLAN_MUTATIONS
from tiny_plan import split_tiny_plan, split_tiny_request, tiny_plan, tiny_request

from planner_service.check import check_plan

if TYPE_CHECKING:
    from .conftest import PeerChecker, Planned

KINDS = ("plan", "fallback")
ANY_FIELD = 12
"""Plans with any field changed, for each case."""


def rejected(peer: PeerChecker, request: pb.PlanRequest, plan: pb.Plan, what: str) -> bool:
    """Return the verdict that both give."""
    faults = check_plan(request, plan).faults
    assert peer.rejects(request, plan) is bool(faults), f"{what}: we find {list(faults[:5])}"
    return bool(faults)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", corners.FITTING)
def test_plans_are_accepted_with_the_same_figures(peer: PeerChecker, planned: Planned, name: str, kind: str) -> None:
    request, plan = planned.copy(name, kind)
    faults, figures = peer.check(request, plan)
    result = check_plan(request, plan)
    assert (faults, result.faults, result.warnings) == ([], (), ())
    assert result.figures is not None
    ours = dataclasses.asdict(result.figures)
    assert ours | {"peak_memory_bytes": list(ours["peak_memory_bytes"])} == figures


@pytest.mark.parametrize("name", corners.FITTING)
def test_one_verdict_on_every_mutation(peer: PeerChecker, planned: Planned, name: str) -> None:
    for mutation, change in PLAN_MUTATIONS.items():
        rng = random.Random(f"{name} {mutation}")
        kind = rng.choice(KINDS)
        request, plan = planned.copy(name, kind)
        if change(plan, rng):
            rejected(peer, request, plan, f"{kind}, {mutation}")


@pytest.mark.parametrize("name", corners.FITTING)
def test_one_verdict_on_any_changed_field(peer: PeerChecker, planned: Planned, name: str) -> None:
    for seed in range(ANY_FIELD):
        kind = KINDS[seed % len(KINDS)]
        request, plan = planned.copy(name, kind)
        change_any_field(plan, random.Random(f"{name} {seed}"), SMALL_INTEGERS)
        rejected(peer, request, plan, f"{kind}, seed {seed}")


def test_one_verdict_on_the_plans_worked_out_by_hand(peer: PeerChecker) -> None:
    made = ((tiny_request(), tiny_plan()), (split_tiny_request(), split_tiny_plan()))
    for request, plan in made:
        assert not rejected(peer, request, plan, "as it is")
        verdicts = set()
        for seed in range(10):
            for mutation, change in PLAN_MUTATIONS.items():
                copy = pb.Plan.FromString(plan.SerializeToString())
                if change(copy, random.Random(f"{seed} {mutation}")):
                    verdicts.add(rejected(peer, request, copy, f"{mutation} with seed {seed}"))
        assert verdicts == {True, False}


def test_one_verdict_on_plans_of_other_requests(peer: PeerChecker, planned: Planned) -> None:
    for name, request in planned.requests.items():
        for other in ("one_microbatch", "split_backward", "forward_only", "frozen_encoder", "two_segments"):
            rejected(peer, request, planned.plans[other, "plan"], f"plan of {other} for {name}")
