"""Everything between one pipeline rank and its planner: what is sent, what is streamed, what is kept ready."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
from dip.planner.v1 import planner_pb2 as pb

from trainer_agent import about
from trainer_agent.backoff import Backoff
from trainer_agent.call_error import PlannerCallError
from trainer_agent.outbox import Outbox
from trainer_agent.prefetch import Prefetcher
from trainer_agent.session import PlannerSession
from trainer_agent.window import ScheduleWindow, Unplanned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trainer_agent.admission import Admission
    from trainer_agent.client import PlannerClient
    from trainer_agent.plans import RankPlan
    from trainer_agent.silence import Silence
    from trainer_agent.startup import Start

_log = about.logger(__name__)

DRAIN_S = 1.0
JOIN_S = 5.0


class PlannerLink:
    """The two background threads of an agent and the window between them and the training loop.

    Parameters
    ----------
    client
        The connection.
    start
        The start of the job that this process belongs to.
    replica, rank
        This process's place.
    backoff
        Makes the delays between attempts, for each thread.
    silence
        When a planner that answers nothing is given up for another one; as usual where not given.
    admission
        When a planner that turned this client away is asked again; as usual where not given.
    """

    def __init__(
        self,
        client: PlannerClient,
        start: Start,
        *,
        replica: int,
        rank: int,
        backoff: Callable[[], Backoff] = Backoff,
        silence: Silence | None = None,
        admission: Admission | None = None,
    ) -> None:
        self._client = client
        self._window = ScheduleWindow(
            rank=rank, ranks=start.registration.spec.cluster.ranks, partition=start.registration.partition
        )
        self._session = PlannerSession(
            client,
            start.registration,
            replica=replica,
            rank=rank,
            registered=start.registered,
            on_over=self._window.planner_away,
            admission=admission,
        )
        self._outbox = Outbox(
            self._session, on_refused=self._window.refuse, on_held_up=self._window.held_up, backoff=backoff()
        )
        self._prefetcher = Prefetcher(
            self._session, self._window, on_lost=self._outbox.submit_all_again, backoff=backoff(), silence=silence
        )
        self._submits = rank == 0
        self._closes_job = start.own_name and rank == 0 and replica == 0
        self._started = False

    @property
    def reconnects(self) -> int:
        """How often the stream had to be opened again."""
        return self._prefetcher.reconnects

    @property
    def late(self) -> int:
        """Schedules that came after their iteration."""
        return self._window.late

    @property
    def dropped_reports(self) -> int:
        """Reports that were never sent."""
        return self._outbox.dropped_reports

    def expect(self, iteration: int, batch: pb.Batch) -> None:
        """Have an iteration planned; the first call starts the threads."""
        self._window.expect(iteration, batch)
        if self._submits:
            self._outbox.submit(iteration, batch)
        if not self._started:
            self._started = True
            self._prefetcher.start()
            self._outbox.start()

    def abandon(self, iterations: Iterable[int]) -> None:
        """Let go of iterations that will not be trained on."""
        iterations = list(iterations)
        self._window.abandon(iterations)
        for iteration in iterations:
            self._outbox.forget(iteration)

    def take(self, iteration: int, wait_s: float) -> RankPlan | Unplanned:
        """Take a plan, or the reason why there is none; raises what a background thread kept."""
        self._session.raise_failure()
        taken = self._window.take(iteration, wait_s)
        if isinstance(taken, Unplanned) and taken.unanswered:
            self._prefetcher.missed()
        self._outbox.forget(iteration)  # no rank of the replica is behind this one: all have voted on the one before
        return taken

    def report(self, report: pb.ReportExecutionRequest) -> None:
        """Send a report in the background."""
        if not self._session.over:
            report.job_id = self._session.job_id
            self._outbox.report(report)

    def close(self) -> None:
        """Send what waits, if the planner takes it at once, and end the threads."""
        if self._started and not self._session.over:
            self._outbox.drain(DRAIN_S)
        if self._closes_job and not self._session.over:
            self._close_job()
        self._session.end()
        self._client.close()
        self._window.close()
        if self._started:
            ended = [self._prefetcher.join(JOIN_S), self._outbox.join(JOIN_S)]
            if not all(ended):
                _log.warning("a background thread of the agent did not end within %g s", JOIN_S)

    def _close_job(self) -> None:
        """End the job at the planner: nobody can resume what was named for this start alone."""
        try:
            self._client.close_job(pb.CloseJobRequest(job_id=self._session.job_id), timeout_s=DRAIN_S)
        except PlannerCallError as error:
            if error.code != grpc.StatusCode.NOT_FOUND:
                _log.info("the job stays open at the planner: %s", error)
