"""StreamSchedules: one rank's schedules in iteration order, each as soon as it is planned.

What that order means when plans do not end in order, or do not come at all:

- A batch that was never submitted is passed over: as soon as a later one is planned, that one is sent.
- A batch that was submitted is waited for, because each gets a plan or a reason within bounded time (the pool's limit),
  and at once when a rank reports that the iteration has been run without it. Sending the later one first would lose the
  earlier one for this stream, and nobody runs the later one before.
- A batch that comes after a later iteration was sent is planned all the same; streams that are past it never go back, a
  stream that is opened at it or before gets it.

A store that may have lost what it held ends every stream with UNAVAILABLE: agents submit again whatever they wait for.

A stream holds a position and nothing else. A reader that is slow makes nothing pile up; where the iterations that
it has not read are dropped, its stream ends with RESOURCE_EXHAUSTED.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from dip.planner.v1 import planner_pb2 as pb
from dip.validation import validate_stream_schedules

from planner_service import metrics
from planner_service import settings as names
from planner_service.access import current_caller
from planner_service.server import refusals
from planner_service.store import Answer, AttemptOverError, PlanStore, ReplicaKey, TooOldError, Watch
from planner_service.tracing import tracer

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner_service.access import Caller
    from planner_service.server.handlers import Context
    from planner_service.server.jobs import CurrentJob

_FULL_RETRY_MS: Final = 5_000


class Streams:
    """The open streams.

    Parameters
    ----------
    max_streams
        How many may be open.
    max_client_streams
        How many of one client.
    """

    def __init__(self, store: PlanStore, *, max_streams: int, max_client_streams: int) -> None:
        self._store = store
        self._max_streams = max_streams
        self._max_client_streams = max_client_streams
        self._open: dict[Watch, tuple[Caller, str]] = {}  # who opened it, and the job that it is of
        self._open_of: Counter[str] = Counter()  # by the name of who opened them
        self._ending: dict[Watch, refusals.RefusalError] = {}
        self._may_not: Callable[[Caller, str], bool] = lambda _caller, _job_id: False

    def withdraw(self, where: Callable[[Caller, str], bool]) -> None:
        """End the streams whose caller may not read their job any more; those that are being opened meanwhile, too."""
        self._may_not = where
        self.end(refusals.withdrawn(), where=where)

    def end(self, reason: refusals.RefusalError, *, where: Callable[[Caller, str], bool] | None = None) -> None:
        """End every stream that is open now; with `where`, those whose caller and job it chooses."""
        for watch, (caller, job_id) in self._open.items():
            if where is None or where(caller, job_id):
                self._ending[watch] = reason
                watch.wake()

    async def stream(self, job: CurrentJob, request: pb.StreamSchedulesRequest, context: Context) -> None:
        """Write a rank's responses until its attempt is over.

        Raises
        ------
        InvalidRequestError, StoreError, RefusalError
        """
        validate_stream_schedules(request, job.spec)
        caller = current_caller()
        if self._may_not(caller, request.job_id):  # by now
            raise refusals.withdrawn()
        self._check_room(caller)
        replica = ReplicaKey(job_id=request.job_id, attempt=request.attempt, replica=request.replica)
        with self._store.watch(replica) as watch:
            self._open[watch] = (caller, request.job_id)
            self._open_of[caller.name] += 1
            metrics.stream_opened()
            try:
                # Too old: said before anything is sent.
                await self._store.next_answer(replica, request.rank, request.first_iteration)
                await context.send_initial_metadata(())
                await self._write(replica, request, job.spec.cluster.ranks, watch, context)
            finally:
                del self._open[watch]
                self._open_of[caller.name] -= 1
                if not self._open_of[caller.name]:
                    del self._open_of[caller.name]
                self._ending.pop(watch, None)
                metrics.stream_ended()

    def _check_room(self, caller: Caller) -> None:
        """Refuse one stream too many."""
        if len(self._open) >= self._max_streams:
            raise refusals.exhausted(
                f"{self._max_streams} streams are open, {names.MAX_STREAMS} allows no more", retry_ms=_FULL_RETRY_MS
            )
        if self._open_of[caller.name] >= self._max_client_streams:
            raise refusals.exhausted(
                f"{self._max_client_streams} streams of {caller.name} are open, "
                f"{names.MAX_CLIENT_STREAMS} allows no more",
                retry_ms=_FULL_RETRY_MS,
            )

    async def _write(
        self, replica: ReplicaKey, request: pb.StreamSchedulesRequest, ranks: int, watch: Watch, context: Context
    ) -> None:
        position = request.first_iteration
        while watch not in self._ending:
            try:
                answer = await self._store.next_answer(replica, request.rank, position)
            except AttemptOverError:
                return
            except TooOldError as error:
                raise refusals.exhausted(
                    f"this stream is read too slowly: {error}; connect again at the iteration needed next", retry_ms=0
                ) from error
            if answer is not None:
                await context.write(answer.response or _unplanned(answer))
                metrics.schedule_sent(is_plan=bool(answer.response))
                tracer().delivered(replica, answer.iteration, rank=request.rank, ranks=ranks)
                position = answer.iteration + 1
            if answer is None or not answer.more:
                await watch.changed()
        raise self._ending[watch]


def _unplanned(answer: Answer) -> bytes:
    response = pb.StreamSchedulesResponse(iteration=answer.iteration, unplanned_reason=answer.unplanned_reason)
    return response.SerializeToString(deterministic=True)
