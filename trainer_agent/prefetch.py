"""Keeps one stream of this rank's schedules open and fills the window from it, through every outage of the planner."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import grpc
from dip.planner.v1 import planner_pb2 as pb

from trainer_agent import about
from trainer_agent.backoff import Backoff
from trainer_agent.call_error import PlannerCallError
from trainer_agent.session import SessionThread
from trainer_agent.silence import Silence

if TYPE_CHECKING:
    from collections.abc import Callable

    from dip.connecting import Endpoint

    from trainer_agent.client import ScheduleStream
    from trainer_agent.session import PlannerSession
    from trainer_agent.window import ScheduleWindow

_WHO = "prefetch"

_log = about.logger(__name__)


class Prefetcher:
    """One daemon thread that follows the stream; one for each pipeline rank.

    A stream that breaks is opened again, after a growing delay, at the first iteration that is still missing. A planner
    that does not know the job is told about it first, with the partition that is loaded; one that turns this client
    away is asked again when that may help (see `Admission`).

    Where planners share a store, the stream follows the client from one to the next: when it breaks, when it says
    nothing for too long, and, between two answers, back to the preferred one. Nothing is lost with a change, for any of
    them serves the same plans.

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
    silence
        When a planner that says nothing is given up.
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
        silence: Silence | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._session = session
        self._window = window
        self._on_lost = on_lost
        self._backoff = backoff or Backoff()
        self._silence = silence or Silence()
        self._clock = clock
        self._stream: ScheduleStream | None = None
        self._answered_by: Endpoint | None = None
        self._away_since: float | None = None
        self._outages, self._allowed = 0, 1
        self._answering = False
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

    def missed(self) -> None:
        """Note that an iteration got no answer in time; called on the training thread.

        A planner that takes calls and answers nothing, its process stopped or its loop stuck, is left for the next one.
        """
        if self._silence.missed():
            client = self._session.client
            if client.leave((self._stream or client).endpoint, "it answered nothing for several iterations"):
                self._window.be_patient()

    def _run(self) -> None:
        session = self._session
        while not session.over:
            lost = self._follow_until_lost()
            if not session.over:
                self._reconnects += 1
                self._on_lost()
                session.wait_out(lost, self._backoff)

    def _follow_until_lost(self) -> PlannerCallError | None:
        """Read one stream to its end; return what has to be waited out before the next."""
        self._silence.began()
        try:
            self._session.ensure_registered()
            self._follow()
        except PlannerCallError as error:
            return self._note(error)
        finally:
            self._stream = None
            self._silence.ended()
        return None

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
        self._stream = stream = session.client.stream_schedules(request)
        for answer in stream:
            self._note_answer(stream.endpoint)
            if session.over or not self._window.put(answer) or self._is_elsewhere(stream):
                stream.cancel()
                return

    def _is_elsewhere(self, stream: ScheduleStream) -> bool:
        """Return whether another planner is spoken to than the stream's: the preferred one, which may be back."""
        client = self._session.client
        client.look_for_preferred(pb.GetJobRequest(job_id=self._session.job_id))
        return stream.endpoint != client.endpoint

    def _note(self, error: PlannerCallError) -> PlannerCallError | None:
        """Learn from the way a stream ended; return what has to be waited out."""
        if error.denied:
            return self._note_denial(error)
        if error.outage:
            self._note_outage(error)
        elif error.code == grpc.StatusCode.NOT_FOUND:
            self._window.planner_away("the planner did not know the job")
            self._session.forgotten()
        elif error.code == grpc.StatusCode.OUT_OF_RANGE:
            self._window.refuse(self._window.next_needed(), f"not planned: {error.details}")
        else:
            self._session.refused(error)
        return error

    def _note_denial(self, error: PlannerCallError) -> PlannerCallError | None:
        """Ask the next planner, whose access file may be newer; where all have turned this client away, wait.

        A stream that was opened with a token that has been replaced since is opened again at once.
        """
        client = self._session.client
        if client.would_ask_otherwise():
            _log.info("%s; the files hold something else by now, or another planner is spoken to", error)
            return None
        self._outages += 1
        if self._outages < len(client.endpoints) and client.leave(client.endpoint, str(error)):
            _log.warning("%s; planner %s is asked next", error, client.endpoint)
            return None
        self._outages = 0
        self._window.planner_away(f"the planner turns this client away ({error.code.name}: {error.details})")
        if self._away_since is None:
            self._away_since = self._clock()
        if not self._session.over:
            self._session.admission.denied(_WHO, error)
        return error

    def _note_outage(self, error: PlannerCallError) -> None:
        """Have nobody wait any more once every planner has failed in turn, and say so; before, say who is next.

        The only planner is asked once more where it had answered: it may have ended this stream alone, as it does with
        those of a token that was withdrawn.
        """
        client = self._session.client
        self._outages += 1
        if self._outages == 1:
            self._allowed = max(len(client.endpoints), 1 + self._answering)
        self._answering = False
        if self._outages >= self._allowed:
            self._window.planner_away(f"the planner does not answer ({error.code.name}: {error.details})")
        if self._session.over:
            return
        if self._away_since is None:
            self._away_since = self._clock()
        if self._outages < self._allowed:
            next_one = f"planner {client.endpoint} is asked next" if len(client.endpoints) > 1 else "it is asked again"
            _log.warning("%s; %s", error, next_one)
        elif self._outages == self._allowed:
            _log.warning("%s; training goes on with the fixed fallback schedule until it is back", error)

    def _note_answer(self, endpoint: Endpoint) -> None:
        self._backoff.reset()
        self._silence.heard()
        self._session.admission.granted(_WHO)
        before, self._answered_by = self._answered_by, endpoint
        if before not in (None, endpoint):
            _log.info("planner %s answers in place of planner %s", endpoint, before)
        elif self._away_since is not None:
            _log.info("the planner is back after %.1f s", self._clock() - self._away_since)
        self._away_since, self._outages, self._answering = None, 0, True
