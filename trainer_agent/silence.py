"""When a planner that takes calls but answers nothing is to be given up for another one."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from trainer_agent.window import PATIENCE, PROBE_EVERY

if TYPE_CHECKING:
    from collections.abc import Callable

LEAST_S = 5.0


class Silence:
    """Counts the iterations in a row that got no answer while a planner was being asked. Safe between threads.

    Any planner of a store serves the same plans, so leaving one that only takes long costs next to nothing, and staying
    with one that hangs costs every plan. Changing back and forth does cost something: all planners may be waiting for
    the same search. So after the first change it takes many more iterations until the next.

    Parameters
    ----------
    patience
        So many iterations in a row without an answer are too many.
    again
        So many more, each time that they still are.
    least_s
        And the planner has had at least so long, in seconds, since it was asked or last answered: iterations may be
        shorter than any search.
    clock
        Seconds that only go forward.
    """

    def __init__(
        self,
        *,
        patience: int = PATIENCE,
        again: int = PROBE_EVERY,
        least_s: float = LEAST_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._patience = patience
        self._again = again
        self._least_s = least_s
        self._clock = clock
        self._lock = threading.Lock()
        self._since: float | None = None
        self._missed = 0
        self._allowed = patience

    def began(self) -> None:
        """Note that a planner is being asked."""
        with self._lock:
            self._since = self._clock()

    def ended(self) -> None:
        """Note that none is: iterations without an answer are not counted until one is again."""
        with self._lock:
            self._since = None

    def heard(self) -> None:
        """Note an answer, whatever it is."""
        with self._lock:
            self._since = self._clock()
            self._missed, self._allowed = 0, self._patience

    def missed(self) -> bool:
        """Count an iteration that got no answer; return whether the planner is to be given up for another."""
        with self._lock:
            if self._since is None:
                return False
            self._missed += 1
            if self._missed < self._allowed or self._clock() - self._since < self._least_s:
                return False
            self._allowed = self._missed + self._again
            return True
