"""The job of a client that does nothing wrong, and must not notice what others send."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dip.digests import batch_digest, streamed_digest
from dip.planner.v1 import planner_pb2 as pb
from dip.planner.v1 import planner_pb2_grpc as pb_grpc

from benchmarks.fuzzing.requests import batch, job_spec, register_job

if TYPE_CHECKING:
    import grpc.aio

JOB_ID: Final = "good"
_NUMBER: Final = 1
_PATIENCE_S: Final = 240.0


class GoodJob:
    """A job whose batches are planned one after another, each plan checked on every rank.

    Parameters
    ----------
    channel
        To the planner.
    metadata
        Of every call: a token, where the planner asks for one.
    """

    def __init__(self, channel: grpc.aio.Channel, *, metadata: tuple[tuple[str, str], ...] = ()) -> None:
        self._metadata = metadata
        self._stub: pb_grpc.PlannerServiceAsyncStub = pb_grpc.PlannerServiceStub(channel)
        self._attempt = 1
        self._iteration = 0

    async def register(self) -> None:
        """Register it."""
        await self._stub.RegisterJob(
            register_job(JOB_ID, _NUMBER, attempt=self._attempt), metadata=self._metadata, timeout=_PATIENCE_S
        )

    async def start_anew(self, attempt: int) -> None:
        """Register it as started again: with a higher attempt, and from its first iteration on."""
        self._attempt, self._iteration = attempt, 0
        await self.register()

    async def plan_next(self) -> None:
        """Submit the next batch, take its schedules, report that it ran.

        Raises
        ------
        RuntimeError
            A rank got no schedule, or another one.
        grpc.aio.AioRpcError
            A call was refused.
        """
        made, iteration = batch(_NUMBER, self._iteration), self._iteration
        submitted = pb.SubmitBatchRequest(job_id=JOB_ID, attempt=self._attempt, iteration=iteration, batch=made)
        await self._stub.SubmitBatch(submitted, metadata=self._metadata, timeout=_PATIENCE_S)
        streamed = [await self._streamed(rank) for rank in range(job_spec(_NUMBER).cluster.ranks)]
        kept = await self._stub.GetPlan(
            pb.GetPlanRequest(job_id=JOB_ID, iteration=iteration), metadata=self._metadata, timeout=_PATIENCE_S
        )
        for rank, part in enumerate(streamed):
            if part.schedule.rank != rank or part.batch_digest != batch_digest(made):
                raise RuntimeError(f"iteration {iteration}: rank {rank} got the schedule of another rank or batch")
            if streamed_digest(part) != kept.plan.digest:
                raise RuntimeError(f"iteration {iteration}: rank {rank} got another plan than the one that is kept")
        for rank in range(len(streamed)):
            report = pb.ReportExecutionRequest(
                job_id=JOB_ID, attempt=self._attempt, rank=rank, iteration=iteration, plan_digest=kept.plan.digest
            )
            await self._stub.ReportExecution(report, metadata=self._metadata, timeout=_PATIENCE_S)
        self._iteration += 1

    async def make_room(self, most: int) -> None:
        """Close all other jobs once more are open than so many: those that the fuzzing left would fill the planner."""
        jobs = (await self._stub.ListJobs(pb.ListJobsRequest(), metadata=self._metadata, timeout=_PATIENCE_S)).jobs
        others = [job.job_id for job in jobs if job.job_id != JOB_ID and not job.closed]
        for job_id in others if len(others) > most else ():
            await self._stub.CloseJob(pb.CloseJobRequest(job_id=job_id), metadata=self._metadata, timeout=_PATIENCE_S)

    async def _streamed(self, rank: int) -> pb.StreamedSchedule:
        request = pb.StreamSchedulesRequest(
            job_id=JOB_ID, attempt=self._attempt, rank=rank, first_iteration=self._iteration
        )
        call = self._stub.StreamSchedules(request, metadata=self._metadata, timeout=_PATIENCE_S)
        response = await call.read()
        call.cancel()
        if not isinstance(response, pb.StreamSchedulesResponse) or not response.HasField("schedule"):
            raise RuntimeError(f"iteration {self._iteration}: rank {rank} got no schedule but {response}")
        return response.schedule
