"""Lines that somebody else decides the number of: the first few are written, the rest are counted."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from planner_service.logs.fields import Value, afresh, fields

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Hashable

MOST_LINES: Final = 5
PERIOD_S: Final = 10.0


@dataclass(slots=True)
class _Period:
    """Lines of one kind since a moment."""

    ends_s: float
    written: int = 0
    left_out: int = 0


class Throttle:
    """Writes at most so many lines of each kind in a period, and at its end how many more there were.

    For use from one event loop.

    Parameters
    ----------
    log
        Where lines go.
    most
        Lines of a kind that are written in a period.
    period_s
        How long a period is; it begins with the first line after the one before has ended.
    clock
        Seconds that only go forward.
    call_later
        Calls a function after so many seconds; None: the running event loop does.
    """

    def __init__(
        self,
        log: logging.Logger,
        *,
        most: int = MOST_LINES,
        period_s: float = PERIOD_S,
        clock: Callable[[], float] = time.monotonic,
        call_later: Callable[[float, Callable[[], None]], object] | None = None,
    ) -> None:
        self._log = log
        self._most = most
        self._period_s = period_s
        self._clock = clock
        self._call_later = call_later
        self._periods: dict[Hashable, _Period] = {}

    def line(
        self,
        level: int,
        message: str,
        *arguments: object,
        kind: dict[str, Value],
        **more: Value,
    ) -> None:
        """Write a line, or count it.

        Parameters
        ----------
        level, message, arguments
            As of `logging.Logger.log`.
        kind
            Fields that tell kinds of lines apart; of few values, as each kind is kept until its period has ended.
        more
            Further fields of this line.
        """
        if not self._log.isEnabledFor(level):
            return
        period = self._period(level, message, kind)
        if period.written < self._most:
            period.written += 1
            self._log.log(level, message, *arguments, extra=fields(**kind, **more))
        else:
            period.left_out += 1

    def _period(self, level: int, message: str, kind: dict[str, Value]) -> _Period:
        key = (level, message, *kind.values())
        now_s = self._clock()
        period = self._periods.get(key)
        if period is None or now_s >= period.ends_s:
            period = self._periods[key] = _Period(ends_s=now_s + self._period_s)
            begun = period

            def end() -> None:
                if self._periods.get(key) is begun:
                    del self._periods[key]
                if begun.left_out:
                    with afresh():
                        self._log.log(level, "%d more such lines are left out", begun.left_out, extra=fields(**kind))

            call_later = self._call_later or asyncio.get_running_loop().call_later
            call_later(self._period_s, end)
        return period
