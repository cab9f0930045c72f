"""What became of batches, and how long it took."""

from __future__ import annotations

from typing import Final, Literal, get_args

from planner_service.metrics import catalogue

OutcomeKind = Literal["search", "interrupted", "fixed", "remembered", "late", "refused", "failed", "abandoned"]

# Named at once, so that a rate is there from the first of each on.
_SETTLED: Final = {outcome: catalogue.SETTLED_BATCHES.labels(outcome) for outcome in get_args(OutcomeKind)}
_SOLVES: Final = {task: catalogue.SOLVE_SECONDS.labels(task) for task in ("plan", "partition")}


def batch_settled(outcome: OutcomeKind, elapsed_s: float) -> None:
    """The outcome that this planner came to stands in the store.

    Parameters
    ----------
    elapsed_s
        Since the batch was claimed.
    """
    _SETTLED[outcome].inc()
    catalogue.BATCH_SECONDS.observe(elapsed_s)


def batches_late(count: int) -> None:
    """So many batches were settled because their iterations had been run."""
    if count:
        _SETTLED["late"].inc(count)


def solve_ended(task: Literal["plan", "partition"], elapsed_s: float) -> None:
    """A solver process is done with a task, or is gone."""
    _SOLVES[task].observe(elapsed_s)


def plan_found(*, makespan_us: int, lower_bound_us: int, search_ms: int) -> None:
    """A search found a plan."""
    catalogue.SEARCH_SECONDS.observe(search_ms / 1000)
    if lower_bound_us > 0:
        catalogue.GAP_RATIO.observe(makespan_us / lower_bound_us - 1)
