"""The store's face. Every write is a compare-and-set, so that several planners can share one store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from planner_service.store.records import BatchKey, Entry, JobRecord, Outcome, Progress, ReplicaKey


class Watch(Protocol):
    """Wakes its holder when something changed in one replica of one attempt; a context manager.

    A change that comes between two waits is not lost: the next wait returns at once. Changes are not
    counted, so a holder that is slow costs nothing: it looks at the store when it is ready.
    """

    async def changed(self) -> None:
        """Wait for a change, or for `wake`."""

    def wake(self) -> None:
        """Let the holder look again, from within this process (a planner that drains)."""

    def __enter__(self) -> Watch:
        """Start watching."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop watching."""


class PlanStore(Protocol):
    """Jobs, and for their current attempts batches, outcomes and reports.

    Writes under an attempt that is not current, or of a closed job, raise `AttemptOverError`; everything
    below a replica's oldest kept iteration raises `TooOldError`. The first write of a key stands; later
    ones learn what stands and change nothing.
    """

    async def close(self) -> None:
        """Let go of connections; nothing can be asked afterwards."""

    async def job(self, job_id: str) -> JobRecord | None:
        """Read one job."""

    async def jobs(self) -> Sequence[JobRecord]:
        """Read all jobs, open and closed, by job_id."""

    async def put_job(self, record: JobRecord) -> JobRecord | None:
        """Write a job if the stored version is still `record.version` (0: there is none).

        A higher attempt drops the batches, outcomes and reports of the one before and wakes its watches;
        so does closing for batches without an outcome.

        Returns
        -------
        JobRecord or None
            The record with its new version; None if another writer was faster: read again and decide.
        """

    async def progress(self, job_id: str) -> Progress:
        """How far the current attempt got."""

    async def add_batch(self, key: BatchKey, *, digest: bytes, request: bytes) -> Entry:
        """Write a batch unless its key is taken.

        Returns
        -------
        Entry
            What stands under the key: compare its digest.
        """

    async def settle(self, key: BatchKey, outcome: Outcome) -> Outcome:
        """Write what became of a batch unless that is known already, wake watches, drop what is too old.

        Returns
        -------
        Outcome
            The one that stands.
        """

    async def entry(self, key: BatchKey) -> Entry | None:
        """Read one batch; of a closed job too."""

    async def next_entry(self, replica: ReplicaKey, first_iteration: int) -> Entry | None:
        """Read the batch of the lowest iteration from `first_iteration` on, settled or not."""

    async def unsettled(self, replica: ReplicaKey) -> Sequence[int]:
        """Iterations that have a batch and no outcome, ascending."""

    async def add_report(self, key: BatchKey, rank: int, report: bytes) -> bool:
        """Write a rank's report unless there is one; whether this one was written."""

    async def reports(self, key: BatchKey) -> Sequence[bytes]:
        """Read the reports of one iteration, by rank."""

    def watch(self, replica: ReplicaKey) -> Watch:
        """Make a watch on one replica of one attempt."""
