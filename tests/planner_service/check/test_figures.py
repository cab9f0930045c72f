"""Shows that what a plan says about itself is held against what it does."""

from __future__ import annotations

import pytest
from tiny_plan import MAKESPAN_US, tiny_plan, tiny_request

from planner_service.check import check_plan


@pytest.mark.parametrize("makespan_us", [0, MAKESPAN_US - 1, MAKESPAN_US + 1])
def test_the_makespan_is_the_end_of_the_last_task(makespan_us: int) -> None:
    plan = tiny_plan()
    plan.makespan_us = makespan_us
    expected = f"the plan states a makespan of {makespan_us} us, it takes {MAKESPAN_US}"
    assert check_plan(tiny_request(), plan).faults == (expected,)


@pytest.mark.parametrize(("bound_us", "accepted"), [(-1, False), (0, False), (1, True), (296, True), (297, False)])
def test_the_bound_is_above_nothing_and_not_above_the_makespan(bound_us: int, accepted: bool) -> None:
    plan = tiny_plan()
    plan.lower_bound_us = bound_us
    assert (check_plan(tiny_request(), plan).faults == ()) is accepted


def test_an_optimal_plan_meets_its_bound() -> None:
    plan = tiny_plan()
    plan.search.optimal = True
    assert check_plan(tiny_request(), plan).faults == ("the plan is called optimal, its bound is not its makespan",)
    plan.lower_bound_us = MAKESPAN_US
    assert check_plan(tiny_request(), plan).faults == ()


@pytest.mark.parametrize("digest", [b"", bytes(31), bytes(33)])
def test_a_digest_has_32_bytes(digest: bytes) -> None:
    plan = tiny_plan()
    plan.digest = digest
    assert check_plan(tiny_request(), plan).faults == (f"the digest has {len(digest)} bytes, not 32",)
