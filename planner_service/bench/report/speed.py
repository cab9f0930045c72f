"""How soon a search is good."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner_service.bench.report.query import number, pick
from planner_service.bench.suites.progress import SEARCH

if TYPE_CHECKING:
    from planner_service.bench.result import Result

NEAR = 1.01
"""How many times as long a schedule may be to count as near the best one."""


def long_run_us(result: Result, size: str) -> int | None:
    """Makespan that the longest run of our search found."""
    rows = pick(result.rows("progress"), size=size, method=SEARCH)
    if not rows:
        return None
    longest = max(number(row, "budget_ms") for row in rows)
    return min(number(row, "makespan_us") for row in pick(rows, budget_ms=longest))


def near_after_ms(result: Result, size: str, budget_ms: int, method: str = SEARCH) -> int | None:
    """When a run first had a schedule near the long run's best; None: never."""
    best_us = long_run_us(result, size)
    if best_us is None:
        return None
    rows = pick(result.rows("progress"), size=size, method=method, budget_ms=budget_ms)
    near = [number(row, "elapsed_ms") for row in rows if number(row, "makespan_us") <= NEAR * best_us]
    return min(near, default=None)


def budgets_ms(result: Result, size: str, method: str = SEARCH) -> list[int]:
    """Budgets with which a method was run."""
    rows = pick(result.rows("progress"), size=size, method=method)
    return sorted({number(row, "budget_ms") for row in rows})


def seconds_to_within(result: Result, size: str) -> float | None:
    """Least time in which a run of any budget came near the long run's best; None: none did, or none was made."""
    times = [near_after_ms(result, size, budget_ms) for budget_ms in budgets_ms(result, size)]
    return min((time / 1000 for time in times if time is not None), default=None)
