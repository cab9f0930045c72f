"""The default store: this process's memory, gone with it; trainers bring back what a new one needs."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from planner_service.store.records import (
    AttemptOverError,
    BatchKey,
    Entry,
    JobRecord,
    Outcome,
    Progress,
    ReplicaKey,
    TooOldError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType


class MemoryStore:
    """A `PlanStore` in dictionaries, for use from one event loop.

    No method gives way to another task between reading and writing, which is what makes each of them a
    compare-and-set.

    Parameters
    ----------
    kept_iterations
        Iterations with an outcome that are kept for each replica; the lowest are dropped.
    kept_closed_jobs
        Closed jobs that are kept; the longest closed are forgotten.
    """

    def __init__(self, *, kept_iterations: int = 32, kept_closed_jobs: int = 8) -> None:
        self._kept_iterations = kept_iterations
        self._kept_closed_jobs = kept_closed_jobs
        self._jobs: dict[str, JobRecord] = {}
        self._replicas: dict[str, dict[int, _Replica]] = {}
        self._progress: dict[str, Progress] = {}
        self._closed: dict[str, None] = {}  # in the order of closing
        self._watches: defaultdict[ReplicaKey, set[_EventWatch]] = defaultdict(set)

    async def close(self) -> None:
        """Nothing to let go of."""

    async def job(self, job_id: str) -> JobRecord | None:
        """Read one job."""
        return self._jobs.get(job_id)

    async def jobs(self) -> Sequence[JobRecord]:
        """Read all jobs, open and closed, by job_id."""
        return [self._jobs[job_id] for job_id in sorted(self._jobs)]

    async def put_job(self, record: JobRecord) -> JobRecord | None:
        """Write a job if the stored version is still the record's; see `PlanStore.put_job`."""
        before = self._jobs.get(record.job_id)
        if record.version != (before.version if before else 0):
            return None
        written = replace(record, version=record.version + 1)
        self._jobs[record.job_id] = written
        if before is None or before.attempt != record.attempt:
            self._replicas[record.job_id] = {}
            self._progress[record.job_id] = Progress()
        self._closed.pop(record.job_id, None)
        if record.closed:
            for replica in self._replicas[record.job_id].values():
                replica.drop_unsettled()
            self._closed[record.job_id] = None
            self._forget_closed_jobs()
        self._wake_job(record.job_id)
        return written

    async def progress(self, job_id: str) -> Progress:
        """How far the current attempt got."""
        return self._progress.get(job_id, Progress())

    async def add_batch(self, key: BatchKey, *, digest: bytes, request: bytes) -> Entry:
        """Write a batch unless its key is taken; returns what stands."""
        replica = self._writable(key)
        taken = replica.entries.get(key.iteration)
        if taken is not None:
            return taken
        entry = Entry(iteration=key.iteration, digest=digest, request=request)
        replica.entries[key.iteration] = entry
        return entry

    async def settle(self, key: BatchKey, outcome: Outcome) -> Outcome:
        """Write what became of a batch unless that is known; returns what stands."""
        replica = self._writable(key)
        entry = replica.entries[key.iteration]
        if entry.outcome is not None:
            return entry.outcome
        replica.entries[key.iteration] = replace(entry, outcome=outcome, request=b"")
        replica.drop_oldest(self._kept_iterations)
        if not outcome.unplanned_reason:
            progress = self._progress[key.replica.job_id]
            self._progress[key.replica.job_id] = replace(
                progress, last_planned_iteration=max(progress.last_planned_iteration, key.iteration)
            )
        self._wake(key.replica)
        return outcome

    async def entry(self, key: BatchKey) -> Entry | None:
        """Read one batch; of a closed job too."""
        return self._readable(key.replica, key.iteration).entries.get(key.iteration)

    async def next_entry(self, replica: ReplicaKey, first_iteration: int) -> Entry | None:
        """Read the batch of the lowest iteration from `first_iteration` on, settled or not."""
        if self._current(replica).closed:
            raise AttemptOverError(replica.job_id, replica.attempt)
        entries = self._readable(replica, first_iteration).entries
        iteration = min((iteration for iteration in entries if iteration >= first_iteration), default=None)
        return None if iteration is None else entries[iteration]

    async def unsettled(self, replica: ReplicaKey) -> Sequence[int]:
        """Iterations that have a batch and no outcome, ascending."""
        self._current(replica)
        return self._replica(replica).unsettled()

    async def add_report(self, key: BatchKey, rank: int, report: bytes) -> bool:
        """Write a rank's report unless there is one; whether this one was written."""
        replica = self._writable(key)
        reports = replica.reports.setdefault(key.iteration, {})
        if rank in reports:
            return False
        reports[rank] = report
        if len(replica.reports) > self._kept_iterations:
            del replica.reports[min(replica.reports)]
        progress = self._progress[key.replica.job_id]
        self._progress[key.replica.job_id] = replace(
            progress, last_reported_iteration=max(progress.last_reported_iteration, key.iteration)
        )
        return True

    async def reports(self, key: BatchKey) -> Sequence[bytes]:
        """Read the reports of one iteration, by rank."""
        reports = self._readable(key.replica, key.iteration).reports.get(key.iteration, {})
        return [reports[rank] for rank in sorted(reports)]

    def watch(self, replica: ReplicaKey) -> _EventWatch:
        """Make a watch on one replica of one attempt."""
        return _EventWatch(self._watches, replica)

    def _current(self, key: ReplicaKey) -> JobRecord:
        record = self._jobs.get(key.job_id)
        if record is None or record.attempt != key.attempt:
            raise AttemptOverError(key.job_id, key.attempt)
        return record

    def _writable(self, key: BatchKey) -> _Replica:
        if self._current(key.replica).closed:
            raise AttemptOverError(key.replica.job_id, key.replica.attempt)
        return self._readable(key.replica, key.iteration)

    def _readable(self, key: ReplicaKey, iteration: int) -> _Replica:
        self._current(key)
        replica = self._replica(key)
        if iteration < replica.oldest:
            raise TooOldError(iteration, replica.oldest)
        return replica

    def _replica(self, key: ReplicaKey) -> _Replica:
        return self._replicas[key.job_id].setdefault(key.replica, _Replica())

    def _forget_closed_jobs(self) -> None:
        while len(self._closed) > self._kept_closed_jobs:
            job_id = next(iter(self._closed))
            del self._closed[job_id], self._jobs[job_id], self._replicas[job_id], self._progress[job_id]

    def _wake_job(self, job_id: str) -> None:
        for key in [key for key in self._watches if key.job_id == job_id]:
            self._wake(key)

    def _wake(self, key: ReplicaKey) -> None:
        for watch in self._watches.get(key, ()):
            watch.wake()


@dataclass(slots=True)
class _Replica:
    """The iterations of one replica."""

    entries: dict[int, Entry] = field(default_factory=dict)
    reports: dict[int, dict[int, bytes]] = field(default_factory=dict)
    oldest: int = 0

    def unsettled(self) -> list[int]:
        return sorted(iteration for iteration, entry in self.entries.items() if entry.outcome is None)

    def drop_unsettled(self) -> None:
        for iteration in self.unsettled():
            del self.entries[iteration]

    def drop_oldest(self, kept: int) -> None:
        settled = sorted(iteration for iteration, entry in self.entries.items() if entry.outcome is not None)
        if len(settled) <= kept:
            return
        self.oldest = settled[-kept]
        self.entries = {iteration: entry for iteration, entry in self.entries.items() if iteration >= self.oldest}
        self.reports = {iteration: reports for iteration, reports in self.reports.items() if iteration >= self.oldest}


class _EventWatch:
    """A watch on one replica of one attempt."""

    def __init__(self, watches: defaultdict[ReplicaKey, set[_EventWatch]], key: ReplicaKey) -> None:
        self._watches = watches
        self._key = key
        self._event = asyncio.Event()

    async def changed(self) -> None:
        """Wait for a change, or for `wake`."""
        await self._event.wait()
        self._event.clear()

    def wake(self) -> None:
        """Let the holder look again."""
        self._event.set()

    def __enter__(self) -> _EventWatch:
        self._watches[self._key].add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        watches = self._watches[self._key]
        watches.discard(self)
        if not watches:
            del self._watches[self._key]
