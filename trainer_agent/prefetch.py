"""Keeps one stream of this rank's schedules open and fills the window from it, through every outage of the planner."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import grpc
from dip.planner.v1 import planner_pb2 as pb

from trainer_agent.backoff import Backoff
from trainer_agent.client import PlannerCallError
from trainer_agent.session import SessionThread

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_agent.session import PlannerSession
    from trainer_agent.window import ScheduleWindow

_log = logging.getLogger(__name__)


class Prefetcher:
    """One daemon thread that follows the stream; one for each pipeline rank.

    A stream that breaks is opened again, after a growing delay, at the first iteration that is still missing. A planner
    that does not know the job is told about it first, with the partition that is loaded.

    Parameters
    ----------
    session
        The attempt whose schedules are streamed.
    window
        Where they go.
    on_lost
        Called whenever the stream is lost: what was submitted may be lost with it.
    backoff
        Delays between attempts.
    clock
        Seconds that only go forward; how long an outage lasted is told by it.
    """

    def __init__(
        self,
        session: PlannerSession,
        window: ScheduleWindow,
        *,
        on_lost: Callable[[], None],
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._session = session
        self._window = window
        self._on_lost = on_lost
        self._backoff = backoff or Backoff()
        self._clock = clock
        self._away_since: float | None = None
        self._thread = SessionThread("prefetch", session, self._run)
        self._reconnects = 0

    @property
    def reconnects(self) -> int:
        """How often the stream had to be opened again."""
        return self._reconnects

    def start(self) -> None:
        """Open the stream, in the background."""
        self._thread.start()

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread to end, once the session is over and its client closed; return whether it did."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        session = self._session
        while not session.over:
            delay_s = self._follow_until_lost()
            if not session.over:
                self._reconnects += 1
                self._on_lost()
                session.pause(delay_s)

    def _follow_until_lost(self) -> float:
        """Read one stream to its end; return how long to wait before the next, in seconds."""
        try:
            self._session.ensure_registered()
            self._follow()
        except PlannerCallError as error:
            self._note(error)
            return self._backoff.next_delay_s(error.retry_after_s)
        return self._backoff.next_delay_s()

    def _follow(self) -> None:
        session = self._session
        if session.over:
            return
        request = pb.StreamSchedulesRequest(
            job_id=session.job_id,
            attempt=session.attempt,
            replica=session.replica,
            rank=session.rank,
            first_iteration=self._window.next_needed(),
        )
        stream = session.client.stream_schedules(request)
        for answer in stream:
            self._note_answer()
            if session.over or not self._window.put(answer):
                stream.cancel()
                return

    def _note(self, error: PlannerCallError) -> None:
        """Learn from the way a stream ended."""
        if error.outage:
            self._note_outage(error)
        elif error.code == grpc.StatusCode.NOT_FOUND:
            self._window.planner_away("the planner did not know the job")
            self._session.forgotten()
        elif error.code == grpc.StatusCode.OUT_OF_RANGE:
            self._window.refuse(self._window.next_needed(), f"not planned: {error.details}")
        else:
            self._session.refused(error)

    def _note_outage(self, error: PlannerCallError) -> None:
        self._window.planner_away(f"the planner does not answer ({error.code.name}: {error.details})")
        if self._away_since is None and not self._session.over:
            self._away_since = self._clock()
            _log.warning("%s; training goes on with the fixed fallback schedule until it is back", error)

    def _note_answer(self) -> None:
        self._backoff.reset()
        if self._away_since is not None:
            _log.info("the planner is back after %.1f s", self._clock() - self._away_since)
            self._away_since = None
