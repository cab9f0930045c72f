"""Small jobs, batches, claims and outcomes for tests of stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from planner_service.store import BatchKey, Claim, Claimant, JobRecord, Outcome, PlanStore, ReplicaKey

if TYPE_CHECKING:
    from collections.abc import Sequence


def record(job_id: str = "job", attempt: int = 1, *, version: int = 0, spec: bytes = b"spec") -> JobRecord:
    return JobRecord(job_id=job_id, attempt=attempt, spec=spec, partition=b"partition", version=version)


def key(iteration: int, *, job_id: str = "job", attempt: int = 1, replica: int = 0) -> BatchKey:
    return BatchKey(replica=ReplicaKey(job_id=job_id, attempt=attempt, replica=replica), iteration=iteration)


def planned(text: str = "plan") -> Outcome:
    return Outcome(responses=(text.encode(), text.upper().encode()), answer=b"answer")


def unplanned() -> Outcome:
    return Outcome(unplanned_reason="no")


def claimant(name: str = "one", *, jobs: frozenset[str] | None = None, lease_ms: int = 600_000) -> Claimant:
    return Claimant(name=name, lease_ms=lease_ms, workers=2, jobs=jobs)


async def add(store: PlanStore, iteration: int, *, limit: int = 100, **where: Any) -> None:
    added = await store.add_batch(key(iteration, **where), digest=b"digest", batch=b"batch", limit=limit)
    assert added.digest == b"digest"


async def plan(store: PlanStore, iteration: int, outcome: Outcome | None = None) -> None:
    await add(store, iteration)
    assert await store.settle(key(iteration), b"digest", outcome or planned(f"plan {iteration}"))


async def claimed(store: PlanStore, by: Claimant, held: Sequence[Claim] = ()) -> tuple[str, int] | None:
    """Claim, and tell job and iteration of what was had."""
    claim = await store.claim(by, held)
    return (claim.key.replica.job_id, claim.key.iteration) if isinstance(claim, Claim) else None
