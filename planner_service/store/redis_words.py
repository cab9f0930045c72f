"""What the scripts are told, and tell: names and numbers as they stand in Redis's keys, refusals, packed answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from planner_service.store.records import AttemptOverError, RecentIteration, TooOldError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from planner_service.store.claims import Claim, Claimant
    from planner_service.store.records import BatchKey, ReplicaKey


def quoted(job_id: str) -> str:
    """Return a job's id as keys hold it: without what separates their parts."""
    return quote(job_id, safe="")


def unquoted(job: bytes) -> str:
    """Return the id that a key holds."""
    return unquote(job.decode())


def digits(iteration: int) -> str:
    """Return an iteration's number so that texts sort as numbers do."""
    return f"{iteration:019d}"


def replica_words(key: ReplicaKey) -> tuple[str | int, ...]:
    """Return what names a replica."""
    return quoted(key.job_id), key.attempt, key.replica


def batch_words(key: BatchKey) -> tuple[str | int, ...]:
    """Return what names a batch."""
    return *replica_words(key.replica), digits(key.iteration)


def planner_words(claimant: Claimant | None) -> tuple[str | int, ...]:
    """Return what a script has to know of a planner that claims; nothing of none."""
    if claimant is None:
        return ()
    return claimant.name, claimant.lease_ms, claimant.workers, int(claimant.jobs is None)


def claim_words(held: Sequence[Claim]) -> list[str]:
    """Return what names claims: of each its job and its token."""
    return [word for claim in held for word in (quoted(claim.key.replica.job_id), claim.token)]


def recent_iterations(replica: bytes, numbers: bytes, text: bytes) -> Iterator[RecentIteration]:
    """Take apart what the script `recent` tells of one replica."""
    at = 0

    def next_part(size: int) -> bytes:
        nonlocal at
        at += size
        return text[at - size : at]

    each = [iter(map(int, numbers.split()))] * 6
    for iteration, submitted, settled, reason, summary, reported in zip(*each, strict=True):
        yield RecentIteration(
            replica=int(replica),
            iteration=iteration,
            submitted=bool(submitted),
            settled=bool(settled),
            unplanned_reason=next_part(reason).decode(),
            summary=next_part(summary),
            reported=next_part(reported),
        )


def raise_refusal(status: bytes, answer: Sequence[Any], replica: ReplicaKey, iteration: int) -> None:
    """Raise what a script refuses with its status, if it does.

    Raises
    ------
    AttemptOverError, TooOldError
    """
    if status == b"over":
        raise AttemptOverError(replica.job_id, replica.attempt)
    if status == b"old":
        raise TooOldError(iteration, int(answer[0]))
