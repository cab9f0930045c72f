"""One iteration of all replicas together: they wait for each other, so the slowest of them counts."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final

from dip.planner.v1 import planner_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

STALL_US: Final = 1_000
"""Ranks that waited less for their schedule did not wait."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FellBack:
    """Ranks that ran the fallback for one reason.

    Parameters
    ----------
    replica
        Theirs.
    ranks
        Ascending.
    reason
        As they told it; empty where they told none.
    """

    replica: int
    ranks: tuple[int, ...]
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """One iteration of the replicas that a planner tells of.

    Parameters
    ----------
    replicas
        What became of it on each, by replica.
    """

    iteration: int
    replicas: tuple[pb.IterationStatus, ...]

    @property
    def planned(self) -> tuple[pb.IterationStatus, ...]:
        """Replicas that have a plan."""
        return tuple(status for status in self.replicas if status.state == pb.ITERATION_STATE_PLANNED)

    @property
    def unplanned(self) -> tuple[pb.IterationStatus, ...]:
        """Replicas that have a reason in place of a plan."""
        return tuple(status for status in self.replicas if status.state == pb.ITERATION_STATE_UNPLANNED)

    @property
    def num_waiting(self) -> int:
        """Replicas whose batch has no outcome yet."""
        return sum(status.state == pb.ITERATION_STATE_WAITING for status in self.replicas)

    @property
    def num_reports(self) -> int:
        """Ranks that have reported."""
        return sum(len(status.ranks) for status in self.replicas)

    @property
    def makespan_us(self) -> int:
        """The longest plan; 0 where there is none."""
        return max((status.makespan_us for status in self.planned), default=0)

    @property
    def gap(self) -> float | None:
        """The widest gap between a plan and its bound; None where there is no plan with a bound."""
        return max((gap for status in self.planned if (gap := gap_of(status)) is not None), default=None)

    @property
    def measured_us(self) -> int:
        """What the slowest rank took; 0 where none told."""
        return max(map(measured_us, self.replicas), default=0)

    @property
    def stalled_us(self) -> int:
        """The longest that a rank waited for its schedule."""
        return max(map(stalled_us, self.replicas), default=0)

    @property
    def fell_back(self) -> tuple[FellBack, ...]:
        """Who ran the fallback and why, by replica."""
        return tuple(group for status in self.replicas for group in fell_back(status))

    @property
    def ran_planned(self) -> bool:
        """Whether ranks reported, and all of them ran their plans."""
        return self.num_reports > 0 and not self.fell_back

    @property
    def compares(self) -> bool:
        """Whether what ranks measured is of the plan: ranks of every replica told of ran it."""
        return self.ran_planned and len(self.planned) == len(self.replicas) and self.measured_us > 0 < self.makespan_us


def rounds(statuses: Iterable[pb.IterationStatus]) -> list[Round]:
    """Put the replicas of each iteration together; ascending."""
    by_iteration = sorted(statuses, key=lambda status: (status.iteration, status.replica))
    grouped = groupby(by_iteration, key=lambda status: status.iteration)
    return [Round(iteration=iteration, replicas=tuple(replicas)) for iteration, replicas in grouped]


def gap_of(status: pb.IterationStatus) -> float | None:
    """Return by which part of it a plan may be longer than the best one; None where there is no bound."""
    if not status.lower_bound_us:
        return None
    return status.makespan_us / status.lower_bound_us - 1


def measured_us(status: pb.IterationStatus) -> int:
    """Return what the slowest rank of a replica took; 0 where none told."""
    return max((rank.measured_us for rank in status.ranks), default=0)


def stalled_us(status: pb.IterationStatus) -> int:
    """Return the longest that a rank of a replica waited for its schedule."""
    return max((rank.stalled_us for rank in status.ranks), default=0)


def fell_back(status: pb.IterationStatus) -> Sequence[FellBack]:
    """Return who of a replica ran the fallback and why; those that told no reason last."""
    ranks: dict[str, list[int]] = {}
    for rank in status.ranks:
        if rank.fallback:
            ranks.setdefault(rank.fallback_reason, []).append(rank.rank)
    by_reason = sorted((not reason, sorted(who), reason) for reason, who in ranks.items())
    return [FellBack(replica=status.replica, ranks=tuple(who), reason=reason) for _, who, reason in by_reason]
