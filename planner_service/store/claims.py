"""Who plans what: planners that share a store claim batches under leases."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planner_service.store.records import BatchKey


@dataclass(frozen=True, kw_only=True, slots=True)
class Claimant:
    """A planner as the others see it.

    Parameters
    ----------
    name
        Unlike any other's, and unlike that of an earlier start of the same planner.
    lease_ms
        For how long a claim is its own before it has to be renewed.
    workers
        Its solver processes.
    jobs
        Ids of the only jobs whose batches it takes; None: all.
    """

    name: str
    lease_ms: int
    workers: int
    jobs: frozenset[str] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """A batch that one planner plans, as long as its lease lasts.

    Parameters
    ----------
    digest
        SHA-256 of the batch.
    batch
        Serialized Batch.
    tries
        How often it was claimed before this time, by planners that did not come to an outcome.
    token
        The store's own name of the claim.
    workers
        Solver processes of all planners that take every job's batches, and of the claimant.
    """

    key: BatchKey
    digest: bytes = field(repr=False)
    batch: bytes = field(repr=False)
    tries: int
    token: str
    workers: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Wait:
    """Nothing waits to be claimed.

    Parameters
    ----------
    lease_ends_ms
        Milliseconds until the first lease ends that another planner holds; None where none does.
    """

    lease_ends_ms: int | None
