"""The store's face. Every write is a compare-and-set, so that several planners can share one store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from planner_service.store.claims import Claim, Claimant, Wait
    from planner_service.store.facts import JobStanding, QueueState
    from planner_service.store.records import (
        Added,
        Answer,
        BatchKey,
        Entry,
        JobRecord,
        Outcome,
        Progress,
        RecentIteration,
        ReplicaKey,
    )


class Watch(Protocol):
    """Wakes its holder when something changed that it watches; a context manager.

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
    """Jobs, and for their current attempts batches, the queue of those that wait, outcomes and reports.

    Writes under an attempt that is not current, or of a closed job, raise `AttemptOverError`; everything
    below a replica's oldest kept iteration raises `TooOldError`; anything raises `StoreAwayError` where the store is
    not to be had. The first write of a key stands; later ones learn what stands and change nothing.

    What is kept of an attempt is bounded by iterations and by bytes for each replica, closed jobs by number; a job that
    nobody writes to for long is forgotten, open or closed. In a store without room, what is of iterations that were run
    gives way to a replica's new batches and reports.
    """

    async def start(self, on_lost: Callable[[], None], on_available: Callable[[bool], None] | None = None) -> None:
        """Connect.

        Parameters
        ----------
        on_lost
            Called whenever the store may have lost what it held: what was submitted must be submitted again.
        on_available
            Called whenever it begins or ceases to answer.

        Raises
        ------
        StoreError
            The store can never be used as it is set up. One that is away for now is no error: it is tried for again.
        """

    async def close(self) -> None:
        """Let go of connections; nothing can be asked afterwards."""

    @property
    def shared(self) -> bool:
        """Whether other planners may use it too."""

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
        """Write a batch and queue it, unless its key is taken.

        A batch that comes after its iteration, or a later one, was reported is settled at once with `LATE`. A new one
        wakes the watches on the queue, claimed or not: the others have a lease to look after.

        Parameters
        ----------
        digest
            SHA-256 of the batch.
        batch
            Serialized Batch.
        limit
            How many batches of the replica may be without an outcome, this one included.
        limit_bytes
            What the batches of the job may take that have no outcome, this one included; one alone is taken whatever it
            takes. None: anything.
        claimant
            Who claims the batch in the same step, if it is new; None: whoever comes first.

        Returns
        -------
        Added
            What stands under the key: compare its digest.

        Raises
        ------
        QueueFullError
            `limit` batches have no outcome yet.
        QueueBytesError
            With this one, those without an outcome would take more than `limit_bytes`.
        StoreFullError
            The store has no room.
        """

    async def claim(self, claimant: Claimant, held: Sequence[Claim]) -> Claim | Wait:
        """Take a waiting batch under a lease: jobs in turn, and within a job the lowest iteration first.

        The iteration after the last one that a replica has reported comes after all others: it is being run, or is
        about to be, and a planner that is behind would stay so if it went on with plans that come too late.

        What a planner holds beyond its lease waits again, and so does what this claimant has without knowing: the
        answer that would have told it was lost, or is under way.

        Parameters
        ----------
        held
            The claims that the claimant knows of.
        """

    async def renew(self, claimant: Claimant, held: Sequence[Claim]) -> Sequence[Claim]:
        """Begin the leases of claims anew, and say that the claimant lives; returns those that it has lost."""

    async def release(self, claimant: Claimant, held: Sequence[Claim]) -> None:
        """Give claims back, as if they had never been tried, and let others know that the claimant is gone."""

    async def settle(self, key: BatchKey, digest: bytes, outcome: Outcome) -> bool:
        """Write what became of a batch unless that is known, take it off the queue, wake watches, drop what is too old.

        Parameters
        ----------
        digest
            SHA-256 of the batch that the outcome is of.

        Returns
        -------
        bool
            Whether this outcome stands; False where there is another, or no such batch.
        """

    async def entry(self, key: BatchKey) -> Entry | None:
        """Read one batch; of a closed job too."""

    async def next_answer(self, replica: ReplicaKey, rank: int, first_iteration: int) -> Answer | None:
        """Read what one rank is told next: of the lowest iteration from `first_iteration` on.

        Returns
        -------
        Answer or None
            None where there is no such iteration yet, or no outcome of it.
        """

    async def add_report(
        self, key: BatchKey, rank: int, report: bytes, *, summary: bytes = b"", fell_back: bool = False
    ) -> bool:
        """Write a rank's report unless there is one; whether this one was written.

        Batches of this iteration and of earlier ones that have no outcome yet are settled as too late: nobody
        will run them.

        Parameters
        ----------
        summary
            Serialized IterationStatus of this rank alone, for whoever reads many.
        fell_back
            Whether the rank ran the fallback.
        """

    async def reports(self, key: BatchKey) -> Sequence[bytes]:
        """Read the reports of one iteration, by rank."""

    async def recent(
        self, job_id: str, attempt: int, *, replicas: Sequence[int], count: int, last: int | None = None
    ) -> Sequence[RecentIteration]:
        """Read in few bytes what is kept of the newest iterations, of a closed job too.

        Parameters
        ----------
        replicas
            Whose.
        count
            How many of each.
        last
            The newest one asked for; None: the newest known.

        Returns
        -------
        Sequence[RecentIteration]
            By replica in the order asked for, and iteration, ascending.
        """

    async def queue(self) -> QueueState:
        """Count the batches of all jobs that have no outcome."""

    async def standing(self, job_id: str) -> JobStanding | None:
        """Tell how far ahead of its trainers a job's plans are, and what it takes; None where it is over or unknown."""

    def watch(self, replica: ReplicaKey) -> Watch:
        """Make a watch on one replica of one attempt: outcomes, and the attempt's end."""

    def watch_queue(self) -> Watch:
        """Make a watch on what waits to be claimed."""
