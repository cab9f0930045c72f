"""The ``dip`` command on a machine whose wall clock jumps: SIGUSR1 puts it forward, SIGUSR2 back, an hour each time.

``python -m benchmarks.faults.jumping_clock serve ...``. What Python reads as the time of day jumps in the planner's own
process, as after a step of the machine's clock; monotonic clocks go on as they do there.
"""

from __future__ import annotations

import signal
import sys
import time
from typing import TYPE_CHECKING

from planner_service.cli import main

if TYPE_CHECKING:
    from types import FrameType

_JUMP_NS = {signal.SIGUSR1: 3600 * 10**9, signal.SIGUSR2: -3600 * 10**9}


class JumpingClock:
    """Stands in for the functions of `time` that read the time of day."""

    def __init__(self) -> None:
        self._ahead_ns = 0
        self._true_ns = time.time_ns

    def install(self) -> None:
        """Take their place, and heed the signals."""
        time.time = lambda: self.time_ns() / 10**9
        time.time_ns = self.time_ns
        for number in _JUMP_NS:
            signal.signal(number, self._jump)

    def time_ns(self) -> int:
        """Return nanoseconds since 1970, as this machine believes."""
        return self._true_ns() + self._ahead_ns

    def _jump(self, number: int, frame: FrameType | None) -> None:
        self._ahead_ns += _JUMP_NS[signal.Signals(number)]


if __name__ == "__main__":
    JumpingClock().install()
    sys.exit(main())
