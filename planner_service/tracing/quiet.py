"""A collector that is away is told of once in a while, not with each attempt to reach it."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

PERIOD_S: Final = 60.0


class OnceInAWhile(logging.Filter):
    """Lets one record of each place in the code pass in a period. For use from any thread."""

    def __init__(self, *, period_s: float = PERIOD_S, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._period_s = period_s
        self._clock = clock
        self._passed: dict[tuple[str, int], float] = {}
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record passes."""
        place, now_s = (record.pathname, record.lineno), self._clock()
        with self._lock:
            before = self._passed.get(place)
            if before is not None and now_s - before < self._period_s:
                return False
            self._passed[place] = now_s
        return True
