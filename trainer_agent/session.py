"""One attempt of a job at its planner: what the agent's background threads share."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import grpc

from trainer_agent import about
from trainer_agent.admission import Admission
from trainer_agent.call_error import PlannerCallError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dip.planner.v1 import planner_pb2 as pb

    from trainer_agent.backoff import Backoff
    from trainer_agent.client import PlannerClient

_log = about.logger(__name__)


class PlannerSession:
    """The planner as this attempt knows it: who we are there, whether we still ask, and what went wrong.

    Planners that share a store are one planner here: what one was told, all know. One that does not is told again.

    Parameters
    ----------
    client
        The connection.
    registration
        Job, attempt, spec and the partition that is loaded: with it a planner that lost its memory is told again.
    replica, rank
        Whose schedules this process asks for.
    registered
        Whether the planner has been told already.
    on_over
        Called with the reason when nothing is asked any more.
    admission
        Whether planners let this client in; made where not given.
    """

    def __init__(
        self,
        client: PlannerClient,
        registration: pb.RegisterJobRequest,
        *,
        replica: int,
        rank: int,
        registered: bool,
        on_over: Callable[[str], None],
        admission: Admission | None = None,
    ) -> None:
        self.client = client
        self.admission = admission or Admission(client.would_ask_otherwise)
        self.replica = replica
        self.rank = rank
        self._registration = registration
        self._registered = registered
        self._registering = threading.Lock()
        self._over = threading.Event()
        self._ending = threading.Lock()
        self._on_over = on_over
        self._error: BaseException | None = None

    @property
    def job_id(self) -> str:
        """The job's name at the planner."""
        return self._registration.job_id

    @property
    def attempt(self) -> int:
        """The start of the job that this process belongs to."""
        return self._registration.attempt

    @property
    def over(self) -> bool:
        """Whether this process asks the planner for nothing any more."""
        return self._over.is_set()

    def ensure_registered(self) -> None:
        """Tell the planner what the job is and what is loaded, unless it knows.

        Raises
        ------
        PlannerCallError
            The planner is away, or turns this client away. If it refuses the job, the session is over.
        """
        with self._registering:
            if self._registered or self.over:
                return
            try:
                answer = self.client.register_job(self._registration)
            except PlannerCallError as error:
                if error.outage or error.denied:
                    raise
                self.refused(error)
                return
            if answer.partition != self._registration.partition:
                self.give_up("the planner keeps another partition for this attempt than the one that is loaded")
                return
            self._registered = True
        _log.info("job %s: registered at planner %s with the loaded partition", self.job_id, self.client.endpoint)

    def forgotten(self) -> None:
        """Note that the planner does not know the job: it was started again, without a memory."""
        self._registered = False

    def refused(self, error: PlannerCallError) -> None:
        """End the session over an answer that asking again does not change.

        What only a programming error brings about is raised in the thread that trains. A newer attempt or a closed job
        is no reason to stop a training: it goes on without plans.
        """
        if error.code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.ALREADY_EXISTS):
            self.fail(error)
        else:
            self.give_up(str(error))

    def give_up(self, reason: str) -> None:
        """Ask the planner for nothing any more, and train on with the fallback."""
        if self._end(reason):
            _log.warning(
                "job %s, attempt %d: asks for no more plans: %s; training goes on with the fixed fallback schedule",
                self.job_id,
                self.attempt,
                reason,
            )

    def fail(self, error: BaseException) -> None:
        """Keep what must be raised in the thread that trains, and ask for nothing any more."""
        self._end(str(error), error)

    def end(self) -> None:
        """Ask for nothing any more: the training is over."""
        self._end("the agent is closed")

    def _end(self, reason: str, error: BaseException | None = None) -> bool:
        """End the session; return False where it was over."""
        with self._ending:
            if self._over.is_set():
                return False
            self._error = error
            self._over.set()
        self._on_over(reason)
        return True

    def pause(self, seconds: float) -> None:
        """Wait, unless the session ends meanwhile."""
        if seconds > 0:
            self._over.wait(seconds)

    def wait_out(self, error: PlannerCallError | None, backoff: Backoff) -> None:
        """Wait before the next try, unless the session ends meanwhile.

        Parameters
        ----------
        error
            What the last came to; None: a stream that just ended.
        backoff
            How long to wait, except where the planner turned this client away.
        """
        if error is not None and error.denied:
            self.admission.wait(self._over)
        else:
            self.pause(backoff.next_delay_s(error.retry_after_s if error else 0.0))

    def raise_failure(self) -> None:
        """Raise what a background thread kept, once; called on the thread that trains."""
        error, self._error = self._error, None
        if error is not None:
            raise error


class SessionThread(threading.Thread):
    """A daemon thread whose errors are raised in the thread that trains, at its next call.

    Parameters
    ----------
    name
        What it does.
    session
        Keeps the error.
    work
        Runs until the session is over.
    """

    def __init__(self, name: str, session: PlannerSession, work: Callable[[], None]) -> None:
        super().__init__(name=f"dip-{name}", daemon=True)
        self._session = session
        self._work = work

    def run(self) -> None:
        """Run the work; what it raises is not lost with the thread."""
        try:
            self._work()
        except BaseException as error:
            self._session.fail(error)
