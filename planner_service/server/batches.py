"""From a submitted batch to its outcome in the store."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from dip.digests import batch_digest
from dip.planner.v1 import planner_pb2 as pb
from dip.validation import validate_submit_batch

from planner_service.pool import (
    Cancelled,
    Failed,
    Planned,
    PlanTask,
    Refused,
    Solve,
    SolverPool,
    choose_budget_ms,
    solve_limit_s,
)
from planner_service.server import refusals
from planner_service.server.marks import marked_answer
from planner_service.store import AttemptOverError, BatchKey, Outcome, PlanStore, ReplicaKey, TooOldError

if TYPE_CHECKING:
    from planner_service.pool import SplitPlan
    from planner_service.server.jobs import CurrentJob

_MAKESPANS_REMEMBERED: Final = 16

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Running:
    """A batch on its way through the pool."""

    solve: Solve
    task: asyncio.Task[None]
    num_ranks: int


class Batches:
    """Has every accepted batch planned, once, and stores what came of it.

    Parameters
    ----------
    max_queued
        Batches of one replica that may wait for a plan.
    max_budget_ms, grace_ms
        The longest search, and what it may overrun by.
    """

    def __init__(
        self, store: PlanStore, pool: SolverPool, *, max_queued: int, max_budget_ms: int, grace_ms: int
    ) -> None:
        self._store = store
        self._pool = pool
        self._max_queued = max_queued
        self._max_budget_ms = max_budget_ms
        self._grace_ms = grace_ms
        self._running: dict[BatchKey, _Running] = {}
        self._makespans_us: dict[str, deque[int]] = {}

    async def submit(self, job: CurrentJob, request: pb.SubmitBatchRequest) -> None:
        """Take a batch, or know it already.

        Raises
        ------
        InvalidRequestError, StoreError, RefusalError
            ALREADY_EXISTS for another batch under the key, RESOURCE_EXHAUSTED where too many wait.
        """
        digest, plan_request = await asyncio.to_thread(_prepare, job, request)
        replica = ReplicaKey(job_id=request.job_id, attempt=request.attempt, replica=request.replica)
        key = BatchKey(replica=replica, iteration=request.iteration)
        entry = await self._store.entry(key)
        if entry is None:
            if len(await self._store.unsettled(replica)) >= self._max_queued:
                raise refusals.exhausted(
                    f"{self._max_queued} batches of replica {request.replica} wait for a plan already, "
                    "DIP_MAX_QUEUED_BATCHES allows no more",
                    retry_ms=1_000,
                )
            entry = await self._store.add_batch(key, digest=digest, request=plan_request)
        if entry.digest != digest:
            raise refusals.already_exists(
                f"iteration {request.iteration} of replica {request.replica} was submitted with another batch"
            )
        if entry.outcome is None:
            self._ensure_planned(key, entry.request, job)

    async def came_too_late(self, key: BatchKey, rank: int) -> None:
        """Give up on what nobody will run: a rank has run this iteration, so none waits for it or earlier ones."""
        for other in list(self._running):
            if other.replica == key.replica and other.iteration <= key.iteration:
                reason = f"it came too late: rank {rank} had run iteration {key.iteration} before this one was planned"
                running = self._running[other]
                await self._settle(other, _unplanned(reason, other.iteration, running.num_ranks))
                running.solve.withdraw()

    def end(self, job_id: str) -> None:
        """Cancel every solve of a job whose attempt is over."""
        self._makespans_us.pop(job_id, None)
        for key, running in list(self._running.items()):
            if key.replica.job_id == job_id:
                running.solve.cancel()

    async def close(self) -> None:
        """Wait until nothing is on its way; the pool has cancelled all of it."""
        await asyncio.gather(*(running.task for running in list(self._running.values())), return_exceptions=True)

    def budget_ms(self, job: CurrentJob) -> int:
        """Search time of a job's next plan."""
        options = job.spec.options
        if options.budget_ms > 0:
            return min(options.budget_ms, self._max_budget_ms)
        if options.max_evaluations > 0:
            return self._max_budget_ms  # it stops by count; this only bounds it
        return choose_budget_ms(
            self._makespans_us.get(job.record.job_id, ()), replicas=job.num_replicas, workers=self._pool.workers
        )

    def _ensure_planned(self, key: BatchKey, request: bytes, job: CurrentJob) -> None:
        if key in self._running:
            return
        budget_ms = self.budget_ms(job)
        solve = self._pool.submit(
            PlanTask(request=request, budget_ms=budget_ms, iteration=key.iteration),
            lane=key.replica.job_id,
            order=(key.iteration, key.replica.replica),
            limit_s=solve_limit_s(budget_ms, grace_ms=self._grace_ms, partition_is_kept=True),
        )
        num_ranks = job.spec.cluster.ranks
        task = asyncio.create_task(self._follow(key, solve, num_ranks))
        self._running[key] = _Running(solve=solve, task=task, num_ranks=num_ranks)

    async def _follow(self, key: BatchKey, solve: Solve, num_ranks: int) -> None:
        try:
            match await solve.result():
                case Cancelled():
                    return  # the attempt is over, the batch came too late and is settled, or the planner stops
                case Planned() as planned:
                    self._remember(key.replica.job_id, planned.plan)
                    outcome = Outcome(
                        responses=planned.plan.responses, answer=marked_answer(planned, pb.GetPlanResponse)
                    )
                case Refused(error=error):
                    outcome = _unplanned(str(error), key.iteration, num_ranks)
                case Failed(reason=reason):
                    outcome = _unplanned(f"the search failed: {reason}", key.iteration, num_ranks)
                case other:
                    raise TypeError(f"a plan was asked for, the pool answered {other!r}")
            await self._settle(key, outcome)
        finally:
            # The key may be taken by a newer solve of the same batch once this one was cancelled.
            running = self._running.get(key)
            if running is not None and running.solve is solve:
                del self._running[key]

    async def _settle(self, key: BatchKey, outcome: Outcome) -> None:
        try:
            await self._store.settle(key, outcome)
        except (AttemptOverError, TooOldError) as error:
            _log.debug("outcome is dropped: %s", error)
            return
        if outcome.unplanned_reason:
            _log.warning(
                "unplanned job_id=%s replica=%d iteration=%d reason=%s",
                key.replica.job_id,
                key.replica.replica,
                key.iteration,
                outcome.unplanned_reason,
            )

    def _remember(self, job_id: str, plan: SplitPlan) -> None:
        if not plan.fallback:
            self._makespans_us.setdefault(job_id, deque(maxlen=_MAKESPANS_REMEMBERED)).append(plan.makespan_us)


def _prepare(job: CurrentJob, request: pb.SubmitBatchRequest) -> tuple[bytes, bytes]:
    """Check a batch and make its PlanRequest; for a thread, as big batches take milliseconds."""
    validate_submit_batch(request, job.spec)
    plan_request = pb.PlanRequest(
        job=job.spec, batch=request.batch, partition=pb.Partition.FromString(job.record.partition)
    )
    return batch_digest(request.batch), plan_request.SerializeToString(deterministic=True)


def _unplanned(reason: str, iteration: int, num_ranks: int) -> Outcome:
    response = pb.StreamSchedulesResponse(iteration=iteration, unplanned_reason=reason)
    return Outcome(
        responses=(response.SerializeToString(deterministic=True),) * num_ranks,
        unplanned_reason=reason,
    )
