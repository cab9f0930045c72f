"""What a store keeps, as bytes that it never looks into, and the two ways in which it refuses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from planner_service.store.claims import Claim

LATE: Final = "it came too late: this iteration, or a later one, had been run before it was submitted"
"""Why a batch has no plan that was submitted after its time."""


REPORTS_PART: Final = 4
"""Reports of a replica may take one part in so many of what its outcomes may."""


RECENT_REPORTED: Final = 32
"""Of so many of its newest iterations a job knows whether ranks ran the fallback."""


def late_reason(rank: int, iteration: int) -> str:
    """Why a batch has no plan whose iteration was run without it."""
    return f"it came too late: rank {rank} had run iteration {iteration} before this one was planned"


class StoreError(Exception):
    """A store that cannot do what was asked."""


class AttemptOverError(StoreError):
    """The attempt is not the job's current one any more, or the job is closed, or unknown.

    Parameters
    ----------
    job_id, attempt
        What was asked for.
    """

    def __init__(self, job_id: str, attempt: int) -> None:
        super().__init__(f"attempt {attempt} of job {job_id!r} is over")
        self.job_id = job_id
        self.attempt = attempt


class TooOldError(StoreError):
    """The iteration was dropped as too old.

    Parameters
    ----------
    iteration
        The one asked for.
    oldest
        The oldest that can still be had.
    """

    def __init__(self, iteration: int, oldest: int) -> None:
        super().__init__(f"iteration {iteration} was dropped as too old, the oldest kept is {oldest}")
        self.iteration = iteration
        self.oldest = oldest


class StoreAwayError(StoreError):
    """The store does not answer, or not as it should; later it may."""


class StoreFullError(StoreError):
    """The store has no room for what should be written."""


class QueueFullError(StoreError):
    """A replica has as many batches without an outcome as it may have.

    Parameters
    ----------
    replica
        Its number.
    limit
        How many it may have.
    """

    def __init__(self, replica: int, limit: int) -> None:
        super().__init__(f"{limit} batches of replica {replica} wait for a plan already")
        self.replica = replica
        self.limit = limit


class QueueBytesError(StoreError):
    """The batches of a job that wait for a plan take as much as they may.

    Parameters
    ----------
    taken
        Bytes that they take.
    limit
        Bytes that they may take.
    """

    def __init__(self, taken: int, limit: int) -> None:
        super().__init__(f"batches of this job that wait for a plan take {taken} of {limit} bytes already")
        self.taken = taken
        self.limit = limit


@dataclass(frozen=True, kw_only=True, slots=True)
class JobRecord:
    """One job as its current attempt registered it.

    Parameters
    ----------
    spec, partition
        Serialized JobSpec and Partition.
    replicas
        DP: what is kept of the job is shared out among so many.
    owner
        Name of the caller who opened the job, which counts against what it may have open.
    version
        Counts the record's changes; what compare-and-set compares. 0: not stored yet.
    """

    job_id: str
    attempt: int
    spec: bytes = field(repr=False)
    partition: bytes = field(repr=False)
    replicas: int = 1
    closed: bool = False
    owner: str = ""
    version: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplicaKey:
    """One replica of one attempt: what has an order of iterations."""

    job_id: str
    attempt: int
    replica: int


@dataclass(frozen=True, kw_only=True, slots=True)
class BatchKey:
    """One iteration of one replica."""

    replica: ReplicaKey
    iteration: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What became of a batch: its plan, or the reason why there is none.

    Parameters
    ----------
    responses
        A serialized StreamSchedulesResponse for each rank; none where there is no plan.
    answer
        Serialized GetPlanResponse without reports and without what the responses hold; empty where there is no plan.
    unplanned_reason
        Empty where there is a plan.
    summary
        Serialized IterationStatus of the plan: its few numbers, for whoever reads many.
    """

    responses: tuple[bytes, ...] = field(default=(), repr=False)
    answer: bytes = field(default=b"", repr=False)
    unplanned_reason: str = ""
    summary: bytes = field(default=b"", repr=False)

    @property
    def num_bytes(self) -> int:
        """What it takes to keep it."""
        return sum(map(len, self.responses)) + len(self.answer) + len(self.unplanned_reason) + len(self.summary)


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A batch and what became of it so far.

    Parameters
    ----------
    digest
        SHA-256 of the batch: what tells a repetition from another batch.
    """

    iteration: int
    digest: bytes = field(repr=False)
    outcome: Outcome | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Added:
    """What stands under a key that a batch was written to.

    Parameters
    ----------
    digest
        SHA-256 of the batch that stands.
    settled
        Whether its outcome is known.
    new
        Whether nothing stood there before.
    claim
        The claim, where the batch was new and was claimed in the same step.
    """

    digest: bytes = field(repr=False)
    settled: bool
    new: bool
    claim: Claim | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What one rank is told of one iteration.

    Parameters
    ----------
    response
        A serialized StreamSchedulesResponse; empty where there is no plan.
    unplanned_reason
        Why there is none.
    more
        Whether the next iteration that is known has an outcome, too: ask again at once; else after a change.
    """

    iteration: int
    response: bytes = field(default=b"", repr=False)
    unplanned_reason: str = ""
    more: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far the current attempt got.

    Parameters
    ----------
    last_planned_iteration, last_reported_iteration
        -1 where nothing is planned or reported yet.
    num_waiting
        Batches without an outcome.
    num_reported, num_fell_back
        Of the `RECENT_REPORTED` newest iterations that were reported: how many there are, and in how many of them a
        rank ran the fallback.
    quiet_ms
        Since anybody wrote to the job.
    """

    last_planned_iteration: int = -1
    last_reported_iteration: int = -1
    num_waiting: int = 0
    num_reported: int = 0
    num_fell_back: int = 0
    quiet_ms: int = field(default=0, compare=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class RecentIteration:
    """What is kept of one iteration of one replica, in few bytes.

    Parameters
    ----------
    submitted
        Whether its batch is known.
    settled
        Whether the batch has an outcome.
    unplanned_reason
        Why there is no plan; empty where there is one, and before the outcome.
    summary
        Of the outcome.
    reported
        Summaries of the reports one behind the other, in the order in which they came.
    """

    replica: int
    iteration: int
    submitted: bool
    settled: bool
    unplanned_reason: str = ""
    summary: bytes = field(default=b"", repr=False)
    reported: bytes = field(default=b"", repr=False)
