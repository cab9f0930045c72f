"""What the agent counts, and how it tells people about fallbacks without filling their logs."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dip.validation import shown_reason

from trainer_agent import about

if TYPE_CHECKING:
    from collections.abc import Callable

_log = about.logger(__name__)

SAID_EVERY_S = 30.0


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentStats:
    """Counts of one agent since it connected.

    Parameters
    ----------
    iterations
        Batches that the training loop took a plan for, or none.
    without_plan
        How many of them had no plan on this rank.
    fallbacks
        Iterations that ran the fixed fallback: on this rank's account or another's.
    last_fallback_reason
        Why the last of them did; empty where none did.
    waited_us
        How long the training loop waited for schedules, in microseconds.
    reconnects
        How often the stream of schedules had to be opened again.
    late
        Schedules that came after their iteration.
    dropped_reports
        Reports that the planner never got.
    """

    iterations: int
    without_plan: int
    fallbacks: int
    last_fallback_reason: str
    waited_us: int
    reconnects: int
    late: int
    dropped_reports: int


class FallbackLog:
    """Counts fallbacks and warns of them, every now and then.

    Parameters
    ----------
    quiet
        Counts only: where there is no planner, this was said once.
    clock
        Seconds that only go forward.
    """

    def __init__(self, *, quiet: bool = False, clock: Callable[[], float] = time.monotonic) -> None:
        self._quiet = quiet
        self._clock = clock
        self._said_at: float | None = None
        self._unsaid = 0
        self.count = 0
        self.last_reason = ""

    def note(self, iteration: int, reason: str) -> None:
        """Count one, and warn if the last warning was long enough ago."""
        reason = shown_reason(reason)  # names of a plan that was refused, and what a planner says, are in it
        self.count += 1
        self._unsaid += 1
        self.last_reason = reason
        if self._quiet:
            return
        now = self._clock()
        if self._said_at is not None and now - self._said_at < SAID_EVERY_S:
            return
        more = f" (and {self._unsaid - 1} more since this was last said)" if self._unsaid > 1 else ""
        told = "iteration %d ran the fixed fallback schedule: %s%s"
        _log.warning(told, iteration, reason, more, extra=about.iteration(iteration))
        self._said_at, self._unsaid = now, 0
