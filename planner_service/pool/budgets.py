"""How long to search for a plan where the job leaves that to the planner."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

FIRST_BUDGET_MS: Final = 2_000
LEAST_BUDGET_MS: Final = 200
MOST_BUDGET_MS: Final = 5_000


def choose_budget_ms(makespans_us: Sequence[int], *, replicas: int, workers: int) -> int:
    """Half of the time that a plan may take before the planner falls behind the training.

    Every iteration, which lasts about the median of the makespans planned of late, needs one plan a replica,
    made by `workers` processes: each may take `median * workers / replicas`. More than one iteration's time
    would rely on several iterations being known ahead, so the factor is at most 1. Half, because search is
    not all that a plan takes, and because training may run faster than planned.

    Parameters
    ----------
    makespans_us
        Makespans of the job's latest plans; where empty the answer is `FIRST_BUDGET_MS`.
    replicas, workers
        Plans needed an iteration, processes that make them.

    Returns
    -------
    int
        Milliseconds, from `LEAST_BUDGET_MS` to `MOST_BUDGET_MS`.
    """
    if not makespans_us:
        return FIRST_BUDGET_MS
    share = min(1.0, workers / max(1, replicas))
    budget_ms = int(statistics.median(makespans_us) * share / 2_000)
    return min(MOST_BUDGET_MS, max(LEAST_BUDGET_MS, budget_ms))


def solve_limit_s(budget_ms: int, *, grace_ms: int, partition_is_kept: bool) -> float:
    """Seconds after which a solve is killed.

    Before the search, whose time the budget is, come sizes of sub-microbatches (a quarter of the budget at most) and,
    where none is loaded, a partition (twice the budget at most); both may end a little late.

    Parameters
    ----------
    budget_ms
        Search time.
    grace_ms
        What all of it may overrun by, lowering and sending the plan included.
    partition_is_kept
        Whether the request brings a partition.
    """
    return (budget_ms * _solve_per_search(partition_is_kept) + grace_ms) / 1000


def budget_within_ms(limit_s: float, *, grace_ms: int, partition_is_kept: bool) -> int:
    """Search time of a solve that has `limit_s` for all of it, at least 1 ms; a short limit shortens the grace too."""
    grace_s = min(grace_ms / 1000, limit_s / 4)
    return max(1, int((limit_s - grace_s) * 1000 / _solve_per_search(partition_is_kept)))


def _solve_per_search(partition_is_kept: bool) -> float:
    return 1.5 if partition_is_kept else 3.5
