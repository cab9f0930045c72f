"""A planner that turns this client away: said once, waited out, and asked again once something may have changed."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from trainer_agent import about
from trainer_agent.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_agent.call_error import PlannerCallError

# How often the client's files are looked at, and how often the planner is asked though they did not change.
LOOK_EVERY_S = 1.0
ASK_EVERY_S = 60.0

_log = about.logger(__name__)


class Admission:
    """Whether planners let this client in, as its background threads find out. Safe between them.

    Tokens and certificates are rotated, access files are edited, and mistakes with them are put right, all while a
    training runs: being turned away ends nothing. The planner is asked again as soon as the client's files hold
    something else or another planner is spoken to, or when another thread was let in, and seldom besides: the change
    may be at the planner.

    Parameters
    ----------
    changed
        Returns whether the client would ask otherwise than it was turned away for.
    look_every_s
        How often that is asked, in seconds.
    asking
        Makes the delays between two tries of a thread where nothing changes.
    clock
        Seconds that only go forward.
    """

    def __init__(
        self,
        changed: Callable[[], bool],
        *,
        look_every_s: float = LOOK_EVERY_S,
        asking: Callable[[], Backoff] = lambda: Backoff(initial_s=ASK_EVERY_S, maximum_s=ASK_EVERY_S),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._changed = changed
        self._look_every_s = look_every_s
        self._asking = asking()
        self._clock = clock
        self._lock = threading.Lock()
        self._turned_away: set[str] = set()
        self._let_in = 0

    def denied(self, who: str, error: PlannerCallError) -> None:
        """Note that a planner turned a thread away, and say so if none was."""
        with self._lock:
            first = not self._turned_away
            self._turned_away.add(who)
        if first:
            _log.error(
                "%s. Training goes on with the fixed fallback schedule; the planner is asked again when the files "
                "change, and about once a minute",
                error,
            )

    def granted(self, who: str) -> None:
        """Note that a planner answered a thread."""
        if who not in self._turned_away:  # nearly always: no lock is needed to see that
            return
        with self._lock:
            self._turned_away.discard(who)
            self._let_in += 1
            last = not self._turned_away
        if last:
            _log.info("the planner lets this client in again")

    def wait(self, over: threading.Event) -> None:
        """Wait until it may be worth asking again, or until ``over`` is set."""
        let_in = self._let_in
        until_s = self._clock() + self._asking.next_delay_s()
        while not over.wait(self._look_every_s):
            if self._changed() or self._let_in != let_in or self._clock() >= until_s:
                return
