"""When a search stops: by the clock, or by the number of schedules tried where a plan must not depend on the clock."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(kw_only=True, slots=True)
class Stopping:
    """Budget of one search.

    Parameters
    ----------
    seconds
        Time from the making of this object; not looked at where ``max_evaluations`` is set.
    max_evaluations
        Schedules to try; 0: by time.
    clock
        Seconds that never go back.
    """

    seconds: float
    max_evaluations: int = 0
    clock: Callable[[], float] = time.monotonic
    evaluations: int = 0
    started: float = field(init=False)

    def __post_init__(self) -> None:
        if self.seconds <= 0:
            raise ValueError(f"seconds is {self.seconds}; allowed is more than 0")
        if self.max_evaluations < 0:
            raise ValueError(f"max_evaluations is {self.max_evaluations}; allowed are 0 and more")
        self.started = self.clock()

    @property
    def by_time(self) -> bool:
        """Whether the clock decides."""
        return not self.max_evaluations

    def count(self, evaluations: int) -> None:
        """Note that so many schedules were tried."""
        self.evaluations += evaluations

    def elapsed_ms(self) -> int:
        """Milliseconds since the start."""
        return round((self.clock() - self.started) * 1000)

    def progress(self) -> float:
        """Used share of the budget; 1 and more when it is spent."""
        if self.max_evaluations:
            return self.evaluations / self.max_evaluations
        return (self.clock() - self.started) / self.seconds

    def left_s(self) -> float:
        """Seconds left of the budget; infinite where the clock does not decide."""
        return max(0.0, self.seconds * (1.0 - self.progress())) if self.by_time else float("inf")

    def left_evaluations(self) -> float:
        """Schedules left to try; infinite where the clock decides."""
        return max(0, self.max_evaluations - self.evaluations) if self.max_evaluations else float("inf")

    def spent(self, share: float = 1.0) -> bool:
        """Whether at least this share of the budget is used."""
        return self.progress() >= share
