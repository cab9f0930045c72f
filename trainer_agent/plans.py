"""What one rank runs in one iteration, wherever it came from: the planner or the fixed fallback."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dip.planner.v1 import planner_pb2 as pb

    from trainer_agent.mesh import Mesh


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

    @classmethod
    def of(cls, plan: pb.Plan, batch: pb.Batch, *, rank: int, iteration: int) -> RankPlan:
        """Take one rank's part of a whole plan.

        Parameters
        ----------
        plan
            The plan, with a schedule for ``rank`` and its digest.
        batch
            The metadata that it was made from.
        rank
            The pipeline rank.
        iteration
            The iteration that it is for.
        """
        return cls(
            iteration=iteration,
            batch=batch,
            partition=plan.partition,
            sub_microbatches=tuple(sorted(plan.sub_microbatches, key=lambda sub: sub.id)),
            schedule=next(schedule for schedule in plan.ranks if schedule.rank == rank),
            digest=plan.digest,
            makespan_us=plan.makespan_us,
            fallback=plan.fallback,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class TakenPlan:
    """What is there for one batch when the training loop comes to it.

    Parameters
    ----------
    iteration
        Number of the iteration, from 0 at the first batch of the job.
    batch
        The batch's metadata, as every rank of the replica knows it.
    plan
        This rank's part of the plan; None where there is none in time.
    waited_us
        How long the training loop waited for it.
    reason
        Why there is no plan, in words; empty where there is one.
    """

    iteration: int
    batch: pb.Batch
    plan: RankPlan | None
    waited_us: int
    reason: str = ""


class PlanSource(Protocol):
    """Where the executor gets its plans from: the agent, or a test.

    The specification, the partition and the attempt are the same on all processes of the job: costs that were measured
    on this process alone must not get in here.
    """

    @property
    def spec(self) -> pb.JobSpec:
        """The job, as all ranks know it."""

    @property
    def partition(self) -> pb.Partition:
        """Where every layer lives."""

    @property
    def mesh(self) -> Mesh:
        """Which process this is."""

    @property
    def attempt(self) -> int:
        """Number of this start of the training job."""

    def take(self, batch: object) -> TakenPlan:
        """Return what there is for the user's next batch; called once for each, in order, by the training loop."""

    def report(self, report: pb.ReportExecutionRequest) -> None:
        """Take what was measured, without blocking; the job's id is left for the source to fill in."""
