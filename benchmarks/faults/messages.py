"""What the ranks of the fault run are told, and what they say; times are seconds of the machine's monotonic clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True, kw_only=True, slots=True)
class Leave:
    """How far a rank may train.

    Parameters
    ----------
    stop_before
        The iteration that it may not run yet.
    batch_ms
        How often its loader has a batch: real ones have a rate, and training cannot outrun it.
    """

    stop_before: int
    batch_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Began:
    """A rank has built its chunks."""

    job_id: str
    attempt: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Accepted:
    """A planner has answered a batch with OK."""

    attempt: int
    replica: int
    iteration: int
    at_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Executed:
    """A rank has run an iteration.

    Parameters
    ----------
    digest
        Of the plan that it ran, be it the fallback.
    reason
        Why it ran the fallback; empty where it did not.
    """

    attempt: int
    replica: int
    rank: int
    iteration: int
    digest: bytes = field(repr=False)
    fallback: bool
    reason: str
    waited_us: int
    loss: float
    at_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Failed:
    """A rank ends over an error."""

    error: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """A rank ends as it was told."""

    reconnects: int
    late: int


Message: TypeAlias = Began | Accepted | Executed | Failed | Ended
