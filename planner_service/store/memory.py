"""The default store: this process's memory, gone with it; trainers bring back what a new one needs."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from planner_service import metrics
from planner_service.store.facts import JobStanding
from planner_service.store.memory_queue import MemoryQueue
from planner_service.store.memory_replica import MemoryReplica
from planner_service.store.memory_room import BATCH_BYTES, MOST_BYTES, MemoryRoom, job_bytes
from planner_service.store.records import (
    RECENT_REPORTED,
    REPORTS_PART,
    Added,
    Answer,
    AttemptOverError,
    BatchKey,
    Entry,
    JobRecord,
    Outcome,
    Progress,
    QueueBytesError,
    QueueFullError,
    RecentIteration,
    ReplicaKey,
    StoreFullError,
    late_reason,
)
from planner_service.store.watches import EventWatch, Watches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from planner_service.store.claims import Claim, Claimant, Wait
    from planner_service.store.facts import QueueState


@dataclass(slots=True)
class _Job:
    """A job with what is kept of its current attempt."""

    record: JobRecord
    written_s: float
    replicas: dict[int, MemoryReplica] = field(default_factory=dict)
    kept_bytes: int = 0  # outcomes and reports
    progress: Progress = field(default_factory=Progress)
    fell_back: dict[int, bool] = field(default_factory=dict)

    def note_reported(self, iteration: int, *, fell_back: bool) -> None:
        """Note whether ranks ran the fallback, of the newest iterations."""
        self.fell_back[iteration] = fell_back or self.fell_back.get(iteration, False)
        if len(self.fell_back) > RECENT_REPORTED:
            del self.fell_back[min(self.fell_back)]
        last = max(self.progress.last_reported_iteration, iteration)
        self.progress = replace(self.progress, last_reported_iteration=last)


class MemoryStore:
    """A `PlanStore` in dictionaries, for use from one event loop.

    No method gives way to another task between reading and writing, which is what makes each of them a
    compare-and-set.

    Parameters
    ----------
    kept_iterations
        Iterations with an outcome that are kept for each replica; the lowest are dropped.
    kept_bytes
        What the outcomes of a job may take, shared out equally among its replicas; the lowest iterations are dropped.
        Reports may take one part in `REPORTS_PART` of that besides.
    kept_closed_jobs
        Closed jobs that are kept; the longest closed are forgotten.
    idle_job_s
        Seconds after which a job is forgotten that nobody writes to.
    most_bytes
        What everything may take, of the jobs of one client half of it. What is too much is refused, and a plan that is
        gets a reason in its place.
    clock
        Seconds that only go forward.
    """

    def __init__(
        self,
        *,
        kept_iterations: int = 32,
        kept_bytes: int = 128 * 2**20,
        kept_closed_jobs: int = 8,
        idle_job_s: int = 7 * 24 * 3600,
        most_bytes: int = MOST_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kept_iterations = kept_iterations
        self._kept_bytes = kept_bytes
        self._kept_closed_jobs = kept_closed_jobs
        self._idle_job_s = idle_job_s
        self._clock = clock
        self._jobs: dict[str, _Job] = {}
        self._closed: dict[str, None] = {}  # in the order of closing
        self._queue = MemoryQueue(clock)
        self._room = MemoryRoom(most_bytes, self._taken)
        self._watches = Watches()

    async def start(self, on_lost: Callable[[], None], on_available: Callable[[bool], None] | None = None) -> None:
        """Nothing to connect to, and nothing that is lost before this process."""
        if on_available is not None:
            on_available(True)

    async def close(self) -> None:
        """Nothing to let go of."""

    @property
    def shared(self) -> bool:
        """Nobody else has it."""
        return False

    async def job(self, job_id: str) -> JobRecord | None:
        """Read one job."""
        self._forget_if_idle(job_id)
        job = self._jobs.get(job_id)
        return None if job is None else job.record

    async def jobs(self) -> Sequence[JobRecord]:
        """Read all jobs, open and closed, by job_id."""
        for job_id in list(self._jobs):
            self._forget_if_idle(job_id)
        return [self._jobs[job_id].record for job_id in sorted(self._jobs)]

    async def put_job(self, record: JobRecord) -> JobRecord | None:
        """Write a job if the stored version is still the record's; see `PlanStore.put_job`."""
        job = self._jobs.get(record.job_id)
        if record.version != (job.record.version if job else 0):
            return None
        written = replace(record, version=record.version + 1)
        if job is None or job.record.attempt != record.attempt:
            # The attempt before goes.
            self._room.check(record.owner, job_bytes(record) - (self._bytes_of(job) if job is not None else 0))
            job = self._jobs[record.job_id] = _Job(written, self._clock())
            self._queue.remove_job(record.job_id)
        job.record, job.written_s = written, self._clock()
        self._closed.pop(record.job_id, None)
        if record.closed:
            self._queue.remove_job(record.job_id)
            for replica in job.replicas.values():
                replica.drop_unsettled()
            self._closed[record.job_id] = None
            self._forget_closed_jobs()
        self._watches.wake_job(record.job_id)
        return written

    async def progress(self, job_id: str) -> Progress:
        """How far the current attempt got."""
        job = self._jobs.get(job_id)
        if job is None:
            return Progress()
        return replace(
            job.progress,
            num_waiting=self._queue.num_waiting(job_id),
            num_reported=len(job.fell_back),
            num_fell_back=sum(job.fell_back.values()),
            quiet_ms=round(1000 * (self._clock() - job.written_s)),
        )

    async def add_batch(
        self,
        key: BatchKey,
        *,
        digest: bytes,
        batch: bytes,
        limit: int,
        limit_bytes: int | None = None,
        claimant: Claimant | None = None,
    ) -> Added:
        """Write a batch and queue it unless its key is taken; see `PlanStore.add_batch`."""
        job, replica = self._writable(key)
        standing = replica.entry(key.iteration)
        if standing is not None:
            return Added(digest=standing.digest, settled=standing.outcome is not None, new=False)
        if replica.num_unsettled >= limit:
            raise QueueFullError(key.replica.replica, limit)
        taken = self._queue.num_bytes(key.replica.job_id)
        if limit_bytes is not None and taken and taken + len(batch) > limit_bytes:
            raise QueueBytesError(taken, limit_bytes)
        self._make_room(key.replica, len(batch) + BATCH_BYTES)
        replica.check_kept(key.iteration)
        replica.add(key.iteration, digest)
        with _counting(job, replica):
            is_late = replica.settle_if_late(key.iteration)
            if is_late:
                self._drop_oldest(key.replica)
        if is_late:
            metrics.batches_late(1)
            self._watches.wake(key.replica)
            return Added(digest=digest, settled=True, new=True)
        self._queue.put(key, digest, batch, client=job.record.owner)
        claim = None if claimant is None else self._queue.take(key, claimant)
        self._watches.wake_queue()
        return Added(digest=digest, settled=False, new=True, claim=claim)

    async def claim(self, claimant: Claimant, held: Sequence[Claim]) -> Claim | Wait:
        """Take a waiting batch under a lease; see `PlanStore.claim`."""
        return self._queue.claim(claimant, held)

    async def renew(self, claimant: Claimant, held: Sequence[Claim]) -> Sequence[Claim]:
        """Begin the leases of claims anew; returns those that are lost."""
        return self._queue.renew(claimant, held)

    async def release(self, claimant: Claimant, held: Sequence[Claim]) -> None:
        """Give claims back as if they had never been tried."""
        self._queue.release(claimant, held)
        self._watches.wake_queue()

    async def settle(self, key: BatchKey, digest: bytes, outcome: Outcome) -> bool:
        """Write what became of a batch unless that is known; whether this outcome stands."""
        job, replica = self._writable(key)
        entry = replica.entry(key.iteration)
        if entry is None or entry.digest != digest or entry.outcome is not None:
            return False
        self._queue.remove(key)
        try:
            self._make_room(key.replica, outcome.num_bytes)
        except StoreFullError as error:
            outcome = Outcome(unplanned_reason=f"there is no room for its plan: {error}")
        replica.check_kept(key.iteration)
        with _counting(job, replica):
            replica.settle(key.iteration, outcome)
            self._drop_oldest(key.replica)
        if not outcome.unplanned_reason:
            last = max(job.progress.last_planned_iteration, key.iteration)
            job.progress = replace(job.progress, last_planned_iteration=last)
        self._watches.wake(key.replica)
        return True

    async def entry(self, key: BatchKey) -> Entry | None:
        """Read one batch; of a closed job too."""
        return self._readable(key.replica, key.iteration)[1].entry(key.iteration)

    async def next_answer(self, replica: ReplicaKey, rank: int, first_iteration: int) -> Answer | None:
        """Read what one rank is told next, from `first_iteration` on."""
        job, kept = self._readable(replica, first_iteration)
        if job.record.closed:
            raise AttemptOverError(replica.job_id, replica.attempt)
        return kept.next_answer(rank, first_iteration)

    async def add_report(
        self, key: BatchKey, rank: int, report: bytes, *, summary: bytes = b"", fell_back: bool = False
    ) -> bool:
        """Write a rank's report unless there is one, and settle what is too late; whether it was written."""
        job, replica = self._writable(key)
        share = self._kept_bytes // job.record.replicas // REPORTS_PART
        self._make_room(key.replica, len(report) + len(summary))
        replica.check_kept(key.iteration)
        with _counting(job, replica):
            if not replica.add_report(key.iteration, rank, report, summary):
                return False
            replica.drop_oldest_reports(self._kept_iterations, share)
            job.note_reported(key.iteration, fell_back=fell_back)
            self._queue.note_running(key.replica, key.iteration + 1)
            late = replica.unsettled_until(key.iteration)
            for iteration in late:
                replica.settle(iteration, Outcome(unplanned_reason=late_reason(rank, key.iteration)))
                self._queue.remove(BatchKey(replica=key.replica, iteration=iteration))
            self._drop_oldest(key.replica)
        metrics.batches_late(len(late))
        if late:
            self._watches.wake(key.replica)
        return True

    async def reports(self, key: BatchKey) -> Sequence[bytes]:
        """Read the reports of one iteration, by rank."""
        return self._readable(key.replica, key.iteration)[1].reports(key.iteration)

    async def recent(
        self, job_id: str, attempt: int, *, replicas: Sequence[int], count: int, last: int | None = None
    ) -> Sequence[RecentIteration]:
        """Read in few bytes what is kept of the newest iterations; see `PlanStore.recent`."""
        job = self._jobs.get(job_id)
        if job is None or job.record.attempt != attempt:
            raise AttemptOverError(job_id, attempt)
        kept = ((number, job.replicas[number]) for number in replicas if number in job.replicas)
        return [told for number, replica in kept for told in replica.recent(number, count, last)]

    async def queue(self) -> QueueState:
        """Count the batches of all jobs that have no outcome."""
        return self._queue.state()

    async def standing(self, job_id: str) -> JobStanding | None:
        """Tell how far ahead of its trainers a job's plans are, and what it takes; None where it is over or unknown."""
        self._forget_if_idle(job_id)
        job = self._jobs.get(job_id)
        if job is None or job.record.closed:
            return None
        replicas = job.replicas.values()
        return JobStanding(
            lead=min((replica.lead for replica in replicas if replica.lead is not None), default=None),
            plan_bytes=sum(replica.settled_bytes for replica in replicas),
            report_bytes=sum(replica.reports_bytes for replica in replicas),
        )

    def watch(self, replica: ReplicaKey) -> EventWatch:
        """Make a watch on one replica of one attempt."""
        return self._watches.watch(replica)

    def watch_queue(self) -> EventWatch:
        """Make a watch on what waits to be claimed."""
        return self._watches.watch_queue()

    def _writable(self, key: BatchKey) -> tuple[_Job, MemoryReplica]:
        job, replica = self._readable(key.replica, key.iteration)
        if job.record.closed:
            raise AttemptOverError(key.replica.job_id, key.replica.attempt)
        job.written_s = self._clock()
        return job, replica

    def _readable(self, key: ReplicaKey, iteration: int) -> tuple[_Job, MemoryReplica]:
        job = self._jobs.get(key.job_id)
        if job is None or job.record.attempt != key.attempt:
            raise AttemptOverError(key.job_id, key.attempt)
        replica = job.replicas.setdefault(key.replica, MemoryReplica())
        replica.check_kept(iteration)
        return job, replica

    def _bytes_of(self, job: _Job) -> int:
        queued = self._queue.num_bytes(job.record.job_id)
        num_batches = self._queue.num_waiting(job.record.job_id)
        return job_bytes(job.record) + job.kept_bytes + queued + num_batches * BATCH_BYTES

    def _make_room(self, key: ReplicaKey, more: int) -> None:
        """See that there is room for so many bytes more of a replica, at the cost of what its ranks have run.

        Raises
        ------
        StoreFullError
        """
        job = self._jobs[key.job_id]
        try:
            self._room.check(job.record.owner, more)
        except StoreFullError:
            replica = job.replicas[key.replica]
            with _counting(job, replica):
                for dropped in replica.drop_run():
                    self._queue.remove(BatchKey(replica=key, iteration=dropped))
            self._room.check(job.record.owner, more)

    def _taken(self) -> Iterator[tuple[str, int]]:
        return ((job.record.owner, self._bytes_of(job)) for job in self._jobs.values())

    def _drop_oldest(self, key: ReplicaKey) -> None:
        job = self._jobs[key.job_id]
        share = self._kept_bytes // job.record.replicas
        for dropped in job.replicas[key.replica].drop_oldest(self._kept_iterations, share):
            self._queue.remove(BatchKey(replica=key, iteration=dropped))

    def _forget_if_idle(self, job_id: str) -> None:
        job = self._jobs.get(job_id)
        if job is not None and self._clock() - job.written_s > self._idle_job_s:
            self._forget(job_id)

    def _forget_closed_jobs(self) -> None:
        while len(self._closed) > self._kept_closed_jobs:
            self._forget(next(iter(self._closed)))

    def _forget(self, job_id: str) -> None:
        self._closed.pop(job_id, None)
        self._queue.remove_job(job_id)
        del self._jobs[job_id]
        self._watches.wake_job(job_id)


@contextlib.contextmanager
def _counting(job: _Job, replica: MemoryReplica) -> Iterator[None]:
    """Note what a job takes more, or less, after something was done with one of its replicas."""
    before = replica.kept_bytes
    try:
        yield
    finally:
        job.kept_bytes += replica.kept_bytes - before
