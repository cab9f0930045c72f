"""Shows that a batch's trace follows from its name alone, so that planners agree on it without a word."""

from __future__ import annotations

from itertools import product

from planner_service.store import ReplicaKey
from planner_service.tracing.identity import Identity, identity_of


def replica(job_id: str = "job", attempt: int = 1, number: int = 0) -> ReplicaKey:
    return ReplicaKey(job_id=job_id, attempt=attempt, replica=number)


def test_the_same_name_gives_the_same_trace() -> None:
    """Written down, as planners of different versions share a store while they are upgraded."""
    assert identity_of(replica(), 7) == Identity(trace=0xE962534BD2DC55C867C0E80AB079B301, root=0xEC6A4DE8D95572B6)


def test_every_part_of_the_name_counts() -> None:
    names = product(("job", "job1"), (1, 11), (0, 1), (0, 1, 11))
    found = {identity_of(replica(job, attempt, number), iteration) for job, attempt, number, iteration in names}
    assert len(found) == len({identity.trace for identity in found}) == len({identity.root for identity in found}) == 24
