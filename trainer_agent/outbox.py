"""What the agent has to tell the planner, sent by a thread of its own so that the training never waits for it."""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import TYPE_CHECKING

import grpc
from dip.planner.v1 import planner_pb2 as pb

from trainer_agent import about
from trainer_agent.backoff import Backoff
from trainer_agent.call_error import PlannerCallError
from trainer_agent.session import SessionThread

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_agent.session import PlannerSession

MAX_REPORTS = 32
REPORTS_KEPT_AWAY = 12
"""A planner that is back hears from all ranks at once."""

_WHO = "outbox"

_log = about.logger(__name__)


class Outbox:
    """Sends batches ahead of time and reports afterwards, over one daemon thread.

    Batches are kept until they are forgotten and sent again whenever the planner may have lost them: sending one twice
    changes nothing, and so it is with reports. The oldest of these are dropped where they pile up; while the planner is
    away the newest few are kept, which tell it what happened meanwhile.

    Parameters
    ----------
    session
        The attempt that they belong to.
    on_refused
        Called with an iteration and a reason when the planner will not plan a batch.
    on_held_up
        Called with a reason when batches cannot be handed over for now, and with none when one was.
    backoff
        Delays between attempts.
    """

    def __init__(
        self,
        session: PlannerSession,
        *,
        on_refused: Callable[[int, str], None],
        on_held_up: Callable[[str], None] = lambda _: None,
        backoff: Backoff | None = None,
    ) -> None:
        self._session = session
        self._on_refused = on_refused
        self._on_held_up = on_held_up
        self._backoff = backoff or Backoff()
        self._changed = threading.Condition()
        self._batches: dict[int, pb.Batch] = {}
        self._unsent: deque[int] = deque()
        self._reports: deque[pb.ReportExecutionRequest] = deque()
        self._dropped_reports = 0
        self._report_refused = False
        self._idle = True
        self._away = False
        self._thread = SessionThread("outbox", session, self._run)

    @property
    def dropped_reports(self) -> int:
        """Number of reports that the planner never got."""
        return self._dropped_reports

    def start(self) -> None:
        """Start sending, in the background."""
        self._thread.start()

    def submit(self, iteration: int, batch: pb.Batch) -> None:
        """Send a batch's metadata, and keep it until it is forgotten."""
        with self._changed:
            self._batches[iteration] = batch
            self._unsent.append(iteration)
            self._changed.notify_all()

    def forget(self, iteration: int) -> None:
        """Let go of a batch that nobody needs a plan for any more."""
        with self._changed:
            self._batches.pop(iteration, None)

    def submit_all_again(self) -> None:
        """Send every batch that is kept: the planner may have lost them."""
        with self._changed:
            self._unsent = deque(sorted(self._batches))
            self._changed.notify_all()

    def report(self, report: pb.ReportExecutionRequest) -> None:
        """Send a report, once the planner is there to take it; the oldest of many are dropped."""
        with self._changed:
            self._reports.append(report)
            self._keep_newest_reports(REPORTS_KEPT_AWAY if self._away else MAX_REPORTS)
            self._changed.notify_all()

    def drain(self, timeout_s: float) -> bool:
        """Wait until everything is sent, or the planner is away; return False after the timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: self._session.over or self._away or self._is_empty(), timeout_s)

    def wake(self) -> None:
        """Let the thread see that the session is over."""
        with self._changed:
            self._changed.notify_all()

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread to end, once the session is over; return whether it did."""
        self.wake()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (message := self._next()) is not None:
            try:
                self._session.ensure_registered()
                if isinstance(message, pb.ReportExecutionRequest):
                    self._send_report(message)
                else:
                    self._send_batch(*message)
            except PlannerCallError as error:
                if isinstance(message, pb.ReportExecutionRequest):
                    self._put_report_back(message)
                else:
                    self._put_back(message[0])
                    self._on_held_up(f"{error.code.name}: {error.details}")
                self._wait_out(error)
            else:
                self._backoff.reset()
                self._away = False
                self._session.admission.granted(_WHO)

    def _next(self) -> tuple[int, pb.Batch] | pb.ReportExecutionRequest | None:
        """Wait for something to send: batches first, in the order of their submission. None: the session is over."""
        with self._changed:
            while not self._session.over:
                while self._unsent:
                    iteration = self._unsent.popleft()
                    if (batch := self._batches.get(iteration)) is not None:
                        self._idle = False
                        return iteration, batch
                if self._reports:
                    self._idle = False
                    return self._reports.popleft()
                self._idle = True
                self._changed.notify_all()
                self._changed.wait()
            return None

    def _send_batch(self, iteration: int, batch: pb.Batch) -> None:
        session = self._session
        request = pb.SubmitBatchRequest(
            job_id=session.job_id, attempt=session.attempt, replica=session.replica, iteration=iteration, batch=batch
        )
        try:
            session.client.submit_batch(request)
        except PlannerCallError as error:
            self._raise_if_to_be_sent_again(error)
            self._refused(iteration, error)
        else:
            self._on_held_up("")

    def _refused(self, iteration: int, error: PlannerCallError) -> None:
        if error.outage or error.code in (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.OUT_OF_RANGE):
            self._on_refused(iteration, f"not planned: {error.details}")
        else:
            self._session.refused(error)

    def _is_empty(self) -> bool:
        return self._idle and not self._unsent and not self._reports

    def _put_back(self, iteration: int) -> None:
        with self._changed:
            if iteration not in self._unsent:
                self._unsent.appendleft(iteration)

    def _put_report_back(self, report: pb.ReportExecutionRequest) -> None:
        with self._changed:
            self._reports.appendleft(report)

    def _keep_newest_reports(self, most: int) -> None:
        while len(self._reports) > most:
            self._reports.popleft()
            self._dropped_reports += 1

    def _send_report(self, report: pb.ReportExecutionRequest) -> None:
        try:
            self._session.client.report_execution(report)
        except PlannerCallError as error:
            self._raise_if_to_be_sent_again(error)
            self._dropped_reports += 1
            _log.log(logging.DEBUG if self._report_refused else logging.WARNING, "a report was not taken: %s", error)
            self._report_refused = True

    def _raise_if_to_be_sent_again(self, error: PlannerCallError) -> None:
        """Leave the sending at once where the planner is away, or does not know the job and has to be told first."""
        if error.code == grpc.StatusCode.NOT_FOUND:
            self._session.forgotten()
            self.submit_all_again()
            raise error
        if error.retryable or error.denied:
            raise error

    def _wait_out(self, error: PlannerCallError) -> None:
        session = self._session
        if error.denied and session.client.would_ask_otherwise():
            session.wait_out(None, self._backoff)  # what was denied, or who denied it, has been replaced since
            return
        if error.denied:
            session.admission.denied(_WHO, error)
        with self._changed:
            self._keep_newest_reports(REPORTS_KEPT_AWAY)
            self._away = True
            self._changed.notify_all()
        session.wait_out(error, self._backoff)
