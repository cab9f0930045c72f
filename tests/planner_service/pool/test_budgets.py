"""Shows that the search time follows the iteration time, shared among the replicas, within its limits."""

from __future__ import annotations

import pytest

from planner_service.pool import budget_within_ms, choose_budget_ms, solve_limit_s


@pytest.mark.parametrize(
    ("makespans_s", "replicas", "workers", "budget_ms"),
    [
        ([], 1, 1, 2_000),
        ([3.0], 1, 1, 1_500),
        ([2.0, 9.0, 3.0], 1, 1, 1_500),
        ([3.0], 2, 1, 750),
        ([3.0], 2, 8, 1_500),
        ([0.05], 1, 1, 200),
        ([60.0], 1, 1, 5_000),
        ([3.0], 0, 1, 1_500),
    ],
    ids=["first", "half", "median", "shared", "more workers than replicas", "least", "most", "no replicas named"],
)
def test_budget(makespans_s: list[float], replicas: int, workers: int, budget_ms: int) -> None:
    makespans_us = [int(makespan * 1e6) for makespan in makespans_s]
    assert choose_budget_ms(makespans_us, replicas=replicas, workers=workers) == budget_ms


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("budget_ms", [200, 2_000, 60_000])
def test_limit_leaves_room_for_what_comes_before_the_search(budget_ms: int, kept: bool) -> None:
    before_ms = 0.25 * budget_ms if kept else 2 * budget_ms
    limit_s = solve_limit_s(budget_ms, grace_ms=50, partition_is_kept=kept)
    assert limit_s >= (before_ms + budget_ms + 50) / 1000
    assert budget_within_ms(limit_s, grace_ms=50, partition_is_kept=kept) == pytest.approx(budget_ms, abs=1)


@pytest.mark.parametrize("limit_s", [0.001, 0.1, 0.5])
def test_short_limit_still_searches(limit_s: float) -> None:
    assert 1 <= budget_within_ms(limit_s, grace_ms=2_000, partition_is_kept=True) <= limit_s * 1000
