"""What a check finds: faults, warnings and figures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """What a plan achieves, recomputed from its actions.

    Parameters
    ----------
    makespan_us
        End of the last task.
    lower_bound_us
        What the plan states that no schedule can beat.
    gap
        How far the makespan is above the bound, as a share of the bound; None where the bound is 0.
    over_ideal
        The same above the ideal: every microbatch whole, nothing recomputed, no rank ever idle.
    tasks
        Number of compute actions.
    peak_memory_bytes
        What each rank holds at most, static bytes included, in rank order.
    """

    makespan_us: int
    lower_bound_us: int
    gap: float | None
    over_ideal: float | None
    tasks: int
    peak_memory_bytes: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckResult:
    """The verdict on a plan.

    Parameters
    ----------
    faults
        Rules that the plan breaks, each with where; empty for a valid plan.
    warnings
        What is wrong with the plan's label rather than with the plan: a digest that is not its own. Ranks that
        recompute digests refuse such a plan.
    figures
        None where faults of the partition or of the sub-microbatches leave nothing to compute.
    """

    faults: tuple[str, ...]
    warnings: tuple[str, ...]
    figures: Figures | None
