"""What operators are told of a store: its queue, and how single jobs stand."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueState:
    """The batches of all jobs that have no outcome.

    Parameters
    ----------
    num_waiting
        Those that no planner has: nobody claimed them, or the lease has ended.
    num_claimed
        The others.
    oldest_age_ms
        Since when the oldest of those waits that no planner has; 0 where there is none.
    """

    num_waiting: int = 0
    num_claimed: int = 0
    oldest_age_ms: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class JobStanding:
    """An open job's current attempt, all replicas together.

    Parameters
    ----------
    lead
        Iterations that have an outcome beyond the last one that was reported, of the replica that has the fewest; below
        0 where a replica has run what no batch came for. None where nothing was reported yet.
    plan_bytes, report_bytes
        What outcomes and reports take.
    """

    lead: int | None
    plan_bytes: int
    report_bytes: int
