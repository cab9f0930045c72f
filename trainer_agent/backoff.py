"""How long to wait before the next attempt to reach a planner that did not answer."""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass(kw_only=True, slots=True)
class Backoff:
    """Delays that double from failure to failure, with jitter, so that ranks do not come back all at once.

    Parameters
    ----------
    initial_s, maximum_s
        The longest first delay, and the longest of all.
    rng
        Source of the jitter: each delay is drawn between half of its longest and its longest.
    """

    initial_s: float = 0.1
    maximum_s: float = 3.0
    rng: random.Random = field(default_factory=random.Random)
    _failures: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if not 0 < self.initial_s <= self.maximum_s:
            raise ValueError(
                f"initial_s: {self.initial_s}, maximum_s: {self.maximum_s}; must be above 0 and in this order"
            )

    def next_delay_s(self, at_least_s: float = 0.0) -> float:
        """Return the delay after one more failure; never below what the planner asked for."""
        longest = min(self.maximum_s, self.initial_s * 2.0 ** min(self._failures, 32))
        self._failures += 1
        return max(at_least_s, longest * self.rng.uniform(0.5, 1.0))

    def reset(self) -> None:
        """Start again from the first delay, after a success."""
        self._failures = 0
