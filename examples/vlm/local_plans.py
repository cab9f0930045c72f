"""Plans that are made in the training process itself: how the example runs schedules that no planner searched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from examples.vlm.documents import describe
from trainer_agent.plans import RankPlan, TakenPlan

if TYPE_CHECKING:
    from dip.planner.v1 import planner_pb2 as pb

    from examples.vlm.documents import DocumentBatch
    from trainer_agent import Mesh


class Schedule(Protocol):
    """Makes the plan of a batch: `dip.fallback.fallback_plan`, or `planner_service.baselines.one_f_one_b`."""

    def __call__(self, *, spec: pb.JobSpec, partition: pb.Partition, batch: pb.Batch) -> pb.Plan:
        """Plan, the same on all ranks."""


class LocalPlans:
    """A source of plans for an executor.

    Parameters
    ----------
    spec, partition, mesh
        What the executor runs on.
    schedule
        Makes the plan of each batch.
    """

    attempt = 0

    def __init__(self, spec: pb.JobSpec, partition: pb.Partition, mesh: Mesh, schedule: Schedule) -> None:
        self.spec, self.partition, self.mesh = spec, partition, mesh
        self._schedule = schedule
        self._ready: tuple[object, RankPlan] | None = None
        self._iteration = 0

    def prepare(self, batch: DocumentBatch) -> None:
        """Make the plan of the batch that comes next, so that a clock around the step does not count this."""
        metadata = describe(batch)
        whole = self._schedule(spec=self.spec, partition=self.partition, batch=metadata)
        self._ready = batch, RankPlan.of(whole, metadata, rank=self.mesh.rank, iteration=self._iteration)

    def take(self, batch: object) -> TakenPlan:
        """Hand the executor the plan of a batch that is prepared.

        Raises
        ------
        ValueError
            It is another batch.
        """
        if self._ready is None or self._ready[0] is not batch:
            raise ValueError("step() got another batch than prepare()")
        (_, plan), self._ready = self._ready, None
        self._iteration += 1
        return TakenPlan(iteration=plan.iteration, batch=plan.batch, plan=plan, waited_us=0)

    def report(self, report: pb.ReportExecutionRequest) -> None:
        """Let what was measured go: the step's result has it too."""
