"""What a store keeps, as bytes that it never looks into, and the two ways in which it refuses."""

from __future__ import annotations

from dataclasses import dataclass, field


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


@dataclass(frozen=True, kw_only=True, slots=True)
class JobRecord:
    """One job as its current attempt registered it.

    Parameters
    ----------
    spec, partition
        Serialized JobSpec and Partition.
    version
        Counts the record's changes; what compare-and-set compares. 0: not stored yet.
    """

    job_id: str
    attempt: int
    spec: bytes = field(repr=False)
    partition: bytes = field(repr=False)
    closed: bool = False
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
        A serialized StreamSchedulesResponse for each rank.
    answer
        Serialized GetPlanResponse without reports; empty where there is no plan.
    unplanned_reason
        Empty where there is a plan.
    """

    responses: tuple[bytes, ...] = field(repr=False)
    answer: bytes = field(default=b"", repr=False)
    unplanned_reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """A batch and what became of it so far.

    Parameters
    ----------
    digest
        SHA-256 of the batch: what tells a repetition from another batch.
    request
        Serialized PlanRequest; empty once there is an outcome.
    """

    iteration: int
    digest: bytes = field(repr=False)
    request: bytes = field(repr=False)
    outcome: Outcome | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far the current attempt got; -1 where nothing is planned or reported yet."""

    last_planned_iteration: int = -1
    last_reported_iteration: int = -1
