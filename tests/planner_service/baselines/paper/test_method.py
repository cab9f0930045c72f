"""Shows that the paper's method always plans validly, improves on first-come order, and repeats itself by count."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import random_requests
from corners import CANNOT_FIT, FITTING
from dip.errors import CannotFitError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner_service.baselines.paper import paper_plan
from planner_service.check import check_plan
from planner_service.check.workload import workload_request

if TYPE_CHECKING:
    from dip.planner.v1 import planner_pb2 as pb

SLOW = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("name", FITTING)
def test_plans_are_valid(name: str) -> None:
    request = FITTING[name]()
    result = check_plan(request, paper_plan(request, budget_ms=1000, max_evaluations=30))
    assert result.faults == ()
    assert result.warnings == ()


@pytest.mark.parametrize("name", CANNOT_FIT)
def test_what_fits_in_no_way_is_refused(name: str) -> None:
    with pytest.raises(CannotFitError):
        paper_plan(CANNOT_FIT[name](), budget_ms=1000, max_evaluations=30)


@SLOW
@given(random_requests.plan_requests(), st.booleans())
def test_random_requests_have_valid_plans_or_do_not_fit(request: pb.PlanRequest, loaded: bool) -> None:
    try:
        plan = paper_plan(request, budget_ms=1000, max_evaluations=25)
    except CannotFitError:
        return
    assert check_plan(request, plan).faults == ()
    if loaded:
        again = paper_plan(
            request,
            budget_ms=1000,
            max_evaluations=25,
            partition=plan.partition,
            sub_microbatches=plan.sub_microbatches,
        )
        assert again.sub_microbatches == plan.sub_microbatches
        assert check_plan(request, again).faults == ()


@pytest.mark.parametrize("config", ["vlm-s", "t2v-l"])
def test_the_search_improves_on_first_come_order_and_on_random_orders(config: str) -> None:
    request = workload_request(config, 6, 0, "web")
    request.job.cluster.ClearField("memory_bytes")
    seen: list[tuple[float, int]] = []
    plan = paper_plan(request, budget_ms=1000, max_evaluations=600, on_progress=lambda s, m: seen.append((s, m)))
    drawn = paper_plan(request, budget_ms=1000, max_evaluations=600, search="random")
    assert seen[0][1] > seen[-1][1] == plan.makespan_us
    assert [m for _, m in seen] == sorted((m for _, m in seen), reverse=True)
    assert plan.search.steps[0].engine == "paper: first come"
    assert plan.makespan_us <= drawn.makespan_us
    assert plan.search.evaluations <= 600
    assert check_plan(request, plan).faults == check_plan(request, drawn).faults == ()


def test_the_same_count_and_seed_give_the_same_plan() -> None:
    request = workload_request("vlm-l", 4, 1, "documents")
    plans = [paper_plan(request, budget_ms=1, max_evaluations=200, seed=5) for _ in range(2)]
    assert plans[0].digest == plans[1].digest
    assert check_plan(request, plans[0]).faults == ()


def test_where_memory_binds_ways_are_chosen_for_the_order() -> None:
    request = workload_request("vlm-s", 4, 0, "web")
    free = paper_plan(request, budget_ms=1000, max_evaluations=100)
    static = min(schedule.peak_memory_bytes for schedule in free.ranks)
    request.job.cluster.memory_bytes[:] = [int(0.6 * static)]
    plan = paper_plan(request, budget_ms=1000, max_evaluations=100)
    assert check_plan(request, plan).faults == ()
    assert "paper: memory program" in {step.engine for step in plan.search.steps}
    assert any(action.strategies for schedule in plan.ranks for action in schedule.actions)


def test_arguments_that_make_no_sense_are_refused() -> None:
    request = FITTING["one_module"]()
    with pytest.raises(ValueError, match="search is 'best'"):
        paper_plan(request, budget_ms=100, search="best")
    with pytest.raises(ValueError, match="budget_ms is 0"):
        paper_plan(request, budget_ms=0)
