"""What one rank runs in one iteration, wherever it came from: the planner or the fixed fallback."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dip.planner.v1 import planner_pb2 as pb


@dataclass(frozen=True, kw_only=True, slots=True)
class RankPlan:
    """One rank's part of the plan of one iteration.

    Parameters
    ----------
    iteration
        The iteration that the plan was made for.
    batch
        The metadata that it was made from.
    partition
        Where every layer lives; the one that the job has loaded.
    sub_microbatches
        All sub-microbatches of the replica, by ascending id.
    schedule
        What this rank does, in order.
    digest
        SHA-256 of the whole plan, 32 bytes: what ranks compare before they run.
    makespan_us
        Planned duration of the iteration.
    fallback
        Whether this is the fixed fallback rather than a searched plan.
    """

    iteration: int
    batch: pb.Batch
    partition: pb.Partition
    sub_microbatches: Sequence[pb.SubMicrobatch]
    schedule: pb.RankSchedule
    digest: bytes
    makespan_us: int
    fallback: bool
