"""Shows how long a job's batches are searched, and that no search is longer than the planner allows."""

from __future__ import annotations

import pytest
from serving import spec

from planner_service.pool import SplitPlan, choose_budget_ms
from planner_service.pool.budgets import FIRST_BUDGET_MS
from planner_service.server.budgets import Budgets
from planner_service.server.jobs import CurrentJob
from planner_service.store import JobRecord


def job(*, budget_ms: int = 0, max_evaluations: int = 0) -> CurrentJob:
    asked = spec(budget_ms=budget_ms)
    asked.options.max_evaluations = max_evaluations
    return CurrentJob.of(JobRecord(job_id="job", attempt=1, spec=asked.SerializeToString(), partition=b"", replicas=4))


def plan(makespan_us: int, *, fallback: bool = False) -> SplitPlan:
    return SplitPlan(answer=b"", responses=(), makespan_us=makespan_us, fallback=fallback)


@pytest.mark.parametrize(
    ("asked", "most_ms", "searched_ms"),
    [
        (job(budget_ms=700), 1_000, 700),
        (job(budget_ms=7_000), 1_000, 1_000),
        (job(max_evaluations=50), 1_000, 1_000),
        (job(), 60_000, FIRST_BUDGET_MS),
        (job(), 300, 300),
    ],
)
def test_search_time_of_a_first_plan(asked: CurrentJob, most_ms: int, searched_ms: int) -> None:
    assert Budgets(max_budget_ms=most_ms, grace_ms=10).search_ms(asked, workers=2) == searched_ms


def test_search_time_follows_the_searched_plans_and_all_workers_that_share_the_work() -> None:
    budgets = Budgets(max_budget_ms=60_000, grace_ms=10)
    budgets.remember("job", plan(4_000_000))
    budgets.remember("job", plan(90_000_000, fallback=True))
    found = [budgets.search_ms(job(), workers=workers) for workers in (1, 4)]
    assert found == [choose_budget_ms([4_000_000], replicas=4, workers=workers) for workers in (1, 4)]
    assert found[0] < found[1]
    budgets.forget("job")
    assert budgets.search_ms(job(), workers=1) == FIRST_BUDGET_MS


def test_jobs_that_end_elsewhere_are_forgotten_the_longest_past_first() -> None:
    budgets = Budgets(max_budget_ms=60_000, grace_ms=10)
    for number in range(1_100):
        budgets.remember(f"job {number}", plan(4_000_000))
        budgets.remember("job", plan(4_000_000))
    assert budgets.search_ms(job(), workers=1) != FIRST_BUDGET_MS
    assert len(budgets._makespans_us) == 1_024
