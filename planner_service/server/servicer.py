"""The contract's methods in snake case, each a few lines over the part of the service that does the work."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from dip.planner.v1 import planner_pb2 as pb
from dip.validation import shown_reason, validate_get_job, validate_get_plan, validate_report_execution

from planner_service import metrics
from planner_service.access import current_caller
from planner_service.server import recent, refusals
from planner_service.server.batches import Batches
from planner_service.server.budgets import Budgets
from planner_service.server.calls import PlanningCalls
from planner_service.server.claimed import Means
from planner_service.server.dispatcher import Dispatcher, unique_name
from planner_service.server.jobs import CurrentJob, Jobs
from planner_service.server.marks import packed_report, whole_answer
from planner_service.server.remembered import Remembered
from planner_service.server.streams import Streams
from planner_service.server.turns import Turns
from planner_service.store import AttemptOverError, BatchKey, PlanStore, ReplicaKey

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from dip.validation.keys import AttemptKey

    from planner_service.access import Tokens
    from planner_service.pool import SolverPool
    from planner_service.server.handlers import Context
    from planner_service.settings import Settings

_PLANS_READ_AT_ONCE: Final = 2
"""Plans of one client that are put together at once: each takes megabytes, and threads that others wait for."""


class PlannerServicer:
    """Answers the calls of PlannerService. For use from one event loop."""

    def __init__(self, store: PlanStore, pool: SolverPool, settings: Settings) -> None:
        self._store = store
        self._pool = pool
        times = {"max_budget_ms": settings.max_budget_ms, "grace_ms": settings.solve_grace_ms}
        self._budgets = Budgets(**times)
        self._calls = PlanningCalls(pool, max_calls=settings.max_queued_batches, **times)
        self._streams = Streams(store, max_streams=settings.max_streams, max_client_streams=settings.max_client_streams)
        self._jobs = Jobs(
            store,
            pool,
            max_jobs=settings.max_jobs,
            max_client_jobs=settings.max_client_jobs,
            grace_ms=settings.solve_grace_ms,
            on_over=self._on_over,
        )
        self._dispatcher = Dispatcher(
            Means(store=store, pool=pool, jobs=self._jobs, budgets=self._budgets, remembered=Remembered()),
            name=unique_name(),
            lease_ms=settings.lease_ms,
            own_jobs=settings.plan_jobs == "own",
        )
        self._batches = Batches(
            store,
            self._dispatcher,
            max_queued=settings.max_queued_batches,
            max_queued_bytes=settings.max_queued_bytes,
        )
        self._plan_reads = Turns(most=_PLANS_READ_AT_ONCE)
        self._draining = False

    @property
    def draining(self) -> bool:
        """Whether calls are turned away."""
        return self._draining

    async def drain(self) -> None:
        """Turn calls away, end streams with UNAVAILABLE, give batches back to the store and cancel every solve."""
        self._draining = True
        self._streams.end(refusals.draining())
        await self._dispatcher.close()
        self._pool.drain()

    def start(self) -> None:
        """Begin to plan what waits in the store."""
        self._dispatcher.start()

    def on_tokens(self, tokens: Tokens) -> None:
        """End the streams whose tokens are withdrawn."""
        self._streams.withdraw(lambda caller, job_id: not tokens.still_allow(caller, "StreamSchedules", job_id))

    def on_store_lost(self) -> None:
        """Have everything submitted again: the store may have lost it."""
        self._streams.end(refusals.unavailable("the planner's store was started again; connect again"))

    async def register_job(self, request: pb.RegisterJobRequest, context: Context) -> pb.RegisterJobResponse:
        """Register an attempt of a job."""
        answer = await self._jobs.register(request)
        self._serves(request.job_id)
        return answer

    async def submit_batch(self, request: pb.SubmitBatchRequest, context: Context) -> pb.SubmitBatchResponse:
        """Take a batch to be planned."""
        async with self._attempt(request) as job:
            await self._batches.submit(job, request)
        return pb.SubmitBatchResponse()

    async def stream_schedules(self, request: pb.StreamSchedulesRequest, context: Context) -> None:
        """Stream one rank's schedules."""
        async with self._attempt(request) as job:
            await self._streams.stream(job, request, context)

    async def report_execution(
        self, request: pb.ReportExecutionRequest, context: Context
    ) -> pb.ReportExecutionResponse:
        """Take what a rank measured."""
        async with self._attempt(request) as job:
            report, summary = await asyncio.to_thread(_checked_report, job, request)
            key = _key(job, request.replica, request.iteration)
            if await self._store.add_report(key, request.rank, report, summary=summary, fell_back=request.fallback):
                self._dispatcher.withdraw(key.replica, request.iteration)
                metrics.JOBS.reported(request.job_id, fallback=request.fallback, stalled_us=request.stalled_us)
        return pb.ReportExecutionResponse()

    async def plan(self, request: pb.PlanRequest, context: Context) -> bytes:
        """Plan one batch at once."""
        return await self._calls.plan(request, context)

    async def list_jobs(self, request: pb.ListJobsRequest, context: Context) -> pb.ListJobsResponse:
        """List the jobs."""
        return pb.ListJobsResponse(jobs=await self._jobs.statuses())

    async def get_job(self, request: pb.GetJobRequest, context: Context) -> pb.GetJobResponse:
        """Describe one job. Costs are not recalibrated yet: the effective spec is the registered one."""
        job = await self._jobs.any_attempt(request.job_id)
        validate_get_job(request, job.spec)
        return pb.GetJobResponse(
            status=await self._jobs.status(job.record),
            spec=job.spec,
            effective_spec=job.spec,
            partition=pb.Partition.FromString(job.record.partition),
            recent=await self._recent(job, request),
        )

    async def get_plan(self, request: pb.GetPlanRequest, context: Context) -> bytes:
        """Read one plan with its request and the ranks' reports."""
        job = await self._jobs.any_attempt(request.job_id)
        validate_get_plan(request, job.spec)
        key = _key(job, request.replica, request.iteration)
        async with self._plan_reads.turn(current_caller().name):
            return await self._whole_plan(key, request, job)

    async def _whole_plan(self, key: BatchKey, request: pb.GetPlanRequest, job: CurrentJob) -> bytes:
        entry = await self._store.entry(key)
        where = f"iteration {request.iteration} of replica {request.replica}"
        if entry is None:
            raise refusals.not_found(f"{where} was not submitted in attempt {job.record.attempt}")
        if entry.outcome is None:
            raise refusals.not_found(f"{where} is not planned yet")
        if entry.outcome.unplanned_reason:
            raise refusals.not_found(f"{where} has no plan: {entry.outcome.unplanned_reason}")
        reports = await self._store.reports(key)
        return await asyncio.to_thread(whole_answer, entry.outcome.answer, entry.outcome.responses, reports)

    async def close_job(self, request: pb.CloseJobRequest, context: Context) -> pb.CloseJobResponse:
        """End a job."""
        await self._jobs.close(request.job_id)
        return pb.CloseJobResponse()

    @contextlib.asynccontextmanager
    async def _attempt(self, request: AttemptKey) -> AsyncIterator[CurrentJob]:
        """Find the attempt that a call is of; where it ends during the call, the caller is told why."""
        job = await self._jobs.current(request.job_id, request.attempt)
        self._serves(request.job_id)
        try:
            yield job
        except AttemptOverError as error:
            raise await self._jobs.why_over(request.job_id, request.attempt) from error

    async def _recent(self, job: CurrentJob, request: pb.GetJobRequest) -> list[pb.IterationStatus]:
        replicas = recent.told_replicas(request, job.record.replicas)
        count = recent.told_iterations(request, replicas)
        if count == 0:
            return []
        last = request.last_iteration if request.HasField("last_iteration") else None
        job_id, attempt = job.record.job_id, job.record.attempt
        try:
            found = await self._store.recent(job_id, attempt, replicas=replicas, count=count, last=last)
        except AttemptOverError as error:
            raise await self._jobs.why_over(job_id, attempt) from error
        return await asyncio.to_thread(recent.statuses, found)

    def _serves(self, job_id: str) -> None:
        """Note that trainers of a job talk to this planner."""
        self._dispatcher.serves(job_id)
        metrics.JOBS.heard_of(job_id)

    def _on_over(self, job_id: str, current: int | None) -> None:
        self._dispatcher.end(job_id, current)
        self._budgets.forget(job_id)
        if current is None:
            metrics.JOBS.forget(job_id)


def _key(job: CurrentJob, replica: int, iteration: int) -> BatchKey:
    record = job.record
    return BatchKey(
        replica=ReplicaKey(job_id=record.job_id, attempt=record.attempt, replica=replica), iteration=iteration
    )


def _checked_report(job: CurrentJob, request: pb.ReportExecutionRequest) -> tuple[bytes, bytes]:
    """Check a report, pack it, and say it in short; for a thread, as it lists every action of an iteration."""
    validate_report_execution(request, job.spec)
    request.fallback_reason = shown_reason(request.fallback_reason)
    return packed_report(request), recent.report_summary(request)
