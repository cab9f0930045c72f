"""Shows that the search time follows the iteration time, shared among the replicas, within its limits."""

from __future__ import annotations

import pytest

from planner_service.pool import choose_budget_ms


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
