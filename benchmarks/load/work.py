"""What a planner under load is asked: one job of many replicas, and the batches that its replicas take turns with."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from dip.fallback import fallback_plan
from dip.partition import default_partition
from dip.planner.v1 import planner_pb2 as pb

from planner_service.check.workload import workload_request
from planner_service.pool.split import split_plan

JOB_ID = "load"
ATTEMPT = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """A job under load, equal in every process that is given the same numbers.

    Parameters
    ----------
    config, microbatches
        Set-up and size of a batch, see `planner_service.check.workload`.
    replicas, ranks
        Replicas of the job, pipeline ranks of each.
    batches
        Different batches: replica r has number ``(iteration * replicas + r) % batches`` in an iteration.
    budget_ms
        Search time of each plan.
    split_backward
        Whether backwards may be split, which makes plans of the real solver about twice as long.
    """

    config: str = "vlm-s"
    microbatches: int = 16
    replicas: int = 128
    ranks: int = 8
    batches: int = 4
    budget_ms: int = 1
    split_backward: bool = False

    @classmethod
    def from_json(cls, text: str) -> Work:
        """Read what `to_json` wrote."""
        return cls(**json.loads(text))

    def to_json(self) -> str:
        """Write it for another process's command line."""
        return json.dumps(asdict(self))

    def registration(self) -> pb.RegisterJobRequest:
        """Registration of the job, with the partition that needs no search."""
        spec, batch = self._spec(), self.batch(0)
        return pb.RegisterJobRequest(
            job_id=JOB_ID, attempt=ATTEMPT, spec=spec, partition=default_partition(spec, batch)
        )

    def submission(self, replica: int, iteration: int) -> pb.SubmitBatchRequest:
        """One replica's batch of an iteration."""
        batch = self.batch((iteration * self.replicas + replica) % self.batches)
        return pb.SubmitBatchRequest(job_id=JOB_ID, attempt=ATTEMPT, replica=replica, iteration=iteration, batch=batch)

    def stream(self, replica: int, rank: int, first_iteration: int) -> pb.StreamSchedulesRequest:
        """Request of one rank's stream."""
        return pb.StreamSchedulesRequest(
            job_id=JOB_ID, attempt=ATTEMPT, replica=replica, rank=rank, first_iteration=first_iteration
        )

    def batch(self, number: int) -> pb.Batch:
        """One of the batches."""
        return workload_request(self.config, self.microbatches, number, "web").batch

    def fixed_responses(self, number: int) -> tuple[bytes, ...]:
        """Responses of iteration 0, one a rank, with the fixed schedule of one of the batches."""
        registration = self.registration()
        request = pb.PlanRequest(job=registration.spec, batch=self.batch(number), partition=registration.partition)
        plan = fallback_plan(request.job, request.partition, request.batch)
        plan.fallback = False
        return split_plan(request, plan, 0).responses

    def _spec(self) -> pb.JobSpec:
        spec = workload_request(self.config, self.microbatches, 0, "web").job
        spec.cluster.ranks = self.ranks
        spec.cluster.replicas = self.replicas
        spec.options.budget_ms = self.budget_ms
        spec.options.split_backward = self.split_backward
        return spec
