"""Jobs and their attempts: who decides, who is too late, what is over."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from dip.errors import InvalidRequestError
from dip.planner.v1 import planner_pb2 as pb
from dip.validation import validate_register_job

from planner_service import logs
from planner_service import settings as names
from planner_service.access import current_caller
from planner_service.pool import Cancelled, Failed, Partitioned, PartitionTask, Refused, SolverPool
from planner_service.server import refusals
from planner_service.server.calls import CALLS_LANE
from planner_service.server.places import Places
from planner_service.store import JobRecord, PlanStore
from planner_service.tracing import tracer

if TYPE_CHECKING:
    from collections.abc import Callable

PARTITION_BUDGET_MS: Final = 5_000
_FULL_RETRY_MS: Final = 10_000

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class CurrentJob:
    """A job's current attempt, with its spec parsed.

    Parameters
    ----------
    request_part
        Serialized PlanRequest without a batch.
    """

    record: JobRecord
    spec: pb.JobSpec
    request_part: bytes

    @classmethod
    def of(cls, record: JobRecord) -> CurrentJob:
        """Parse what is stored."""
        spec = pb.JobSpec.FromString(record.spec)
        part = pb.PlanRequest(job=spec, partition=pb.Partition.FromString(record.partition))
        return cls(record=record, spec=spec, request_part=part.SerializeToString(deterministic=True))


class Jobs:
    """Registers, finds and closes jobs.

    Parameters
    ----------
    max_jobs
        Open jobs that are taken.
    max_client_jobs
        Of one client: of whoever opened them.
    grace_ms
        What a partition may overrun its budget by.
    on_over
        Called with a job's id when its attempts are over, all but the one that is given.
    """

    def __init__(
        self,
        store: PlanStore,
        pool: SolverPool,
        *,
        max_jobs: int,
        max_client_jobs: int,
        grace_ms: int,
        on_over: Callable[[str, int | None], None],
    ) -> None:
        self._store = store
        self._pool = pool
        self._max_jobs = max_jobs
        self._max_client_jobs = max_client_jobs
        self._grace_ms = grace_ms
        self._on_over = on_over
        self._registrations: dict[tuple[str, int], asyncio.Task[JobRecord | refusals.RefusalError]] = {}
        self._admitted: dict[tuple[str, int], str] = {}  # whose attempts are being decided on
        self._places = Places()
        self._specs: dict[str, CurrentJob] = {}  # the job asked for last comes last

    async def register(self, request: pb.RegisterJobRequest) -> pb.RegisterJobResponse:
        """Register an attempt: the first registration decides, the others wait for its answer.

        A closed job opens again with a higher attempt.

        Raises
        ------
        InvalidRequestError, RefusalError
        """
        await asyncio.to_thread(validate_register_job, request)
        record = await self._store.job(request.job_id)
        if record is None or not _is_answer(record, request.attempt):
            record = await self._decided(request)
        _check_same_shape(request.spec, pb.JobSpec.FromString(record.spec))
        return pb.RegisterJobResponse(partition=pb.Partition.FromString(record.partition))

    async def current(self, job_id: str, attempt: int) -> CurrentJob:
        """Find the open job whose current attempt this is.

        Raises
        ------
        InvalidRequestError, RefusalError
            NOT_FOUND for a job or attempt that is not registered, FAILED_PRECONDITION for an older one or a closed job.
        """
        job = await self.any_attempt(job_id)
        if attempt > job.record.attempt:
            raise refusals.not_found(
                f"attempt {attempt} of job {job_id!r} is not registered, the current one is {job.record.attempt}: "
                "register it first"
            )
        _check_open(job.record, attempt)
        return job

    async def any_attempt(self, job_id: str) -> CurrentJob:
        """Find a job, open or closed."""
        record = await self._store.job(job_id)
        if record is None:
            self._specs.pop(job_id, None)
            raise refusals.not_found(f"job {job_id!r} is not known here: register it, then submit what is not planned")
        return self._parsed(record)

    async def why_over(self, job_id: str, attempt: int) -> refusals.RefusalError:
        """Say why the store calls an attempt over that was current a moment ago.

        A store that lost the job since says so, too: who is told NOT_FOUND registers again, who is told
        FAILED_PRECONDITION asks for nothing any more.
        """
        try:
            await self.current(job_id, attempt)
        except refusals.RefusalError as refusal:
            return refusal
        return refusals.unavailable(f"job {job_id!r} has been registered anew meanwhile; try again")

    async def close(self, job_id: str) -> None:
        """Close a job; closing it again changes nothing."""
        while not (job := await self.any_attempt(job_id)).record.closed:
            if await self._store.put_job(replace(job.record, closed=True)) is not None:
                self._on_over(job_id, None)
                _log.info("closed", extra=logs.fields(job=job_id, attempt=job.record.attempt))
        self._specs.pop(job_id, None)

    async def statuses(self) -> list[pb.JobStatus]:
        """Describe the caller's jobs, by job_id."""
        caller = current_caller()
        return [await self.status(record) for record in await self._store.jobs() if caller.may_touch(record.job_id)]

    async def status(self, record: JobRecord) -> pb.JobStatus:
        """Describe one job."""
        progress = await self._store.progress(record.job_id)
        return pb.JobStatus(
            job_id=record.job_id,
            attempt=record.attempt,
            last_planned_iteration=progress.last_planned_iteration,
            last_reported_iteration=progress.last_reported_iteration,
            closed=record.closed,
            ranks=self._parsed(record).spec.cluster.ranks,
            replicas=record.replicas,
            waiting_batches=progress.num_waiting,
            quiet_ms=progress.quiet_ms,
            recent_reported_iterations=progress.num_reported,
            recent_fallback_iterations=progress.num_fell_back,
        )

    def _parsed(self, record: JobRecord) -> CurrentJob:
        """Parse a record, unless that was done before."""
        job = self._specs.pop(record.job_id, None)
        if job is None or job.record != record:
            job = CurrentJob.of(record)
        self._specs[record.job_id] = job
        if len(self._specs) > self._max_jobs:  # jobs end at other planners, too, and nobody tells
            del self._specs[next(iter(self._specs))]
        return job

    async def _decided(self, request: pb.RegisterJobRequest) -> JobRecord:
        """Wait for the one decision on this attempt, made by a task that no caller's cancellation ends."""
        key = (request.job_id, request.attempt)
        task = self._registrations.get(key)
        if task is None:
            task = self._registrations[key] = asyncio.create_task(self._decide(request, current_caller().name))
            task.add_done_callback(lambda _: self._registrations.pop(key))
        decision = await asyncio.shield(task)
        if isinstance(decision, refusals.RefusalError):
            raise decision
        return decision

    async def _decide(self, request: pb.RegisterJobRequest, caller: str) -> JobRecord | refusals.RefusalError:
        key = (request.job_id, request.attempt)
        try:
            await self._admit(*key, caller)
            partition = await self._partition(request)
            return await self._write(request, partition, caller)
        except refusals.RefusalError as refusal:
            return refusal
        finally:
            self._admitted.pop(key, None)

    async def _partition(self, request: pb.RegisterJobRequest) -> bytes:
        if request.partition.chunks:
            return request.partition.SerializeToString(deterministic=True)
        with self._places.place() as order, tracer().part("partition"):
            solve = self._pool.submit(
                PartitionTask(request=request.SerializeToString(), budget_ms=PARTITION_BUDGET_MS),
                lane=CALLS_LANE,
                order=order,
                limit_s=(PARTITION_BUDGET_MS + self._grace_ms) / 1000,
            )
            result = await solve.result()
        match result:
            case Partitioned(partition=partition):
                return partition
            case Refused(error=InvalidRequestError() as error):
                raise refusals.invalid(error)
            case Refused(error=error):
                raise refusals.failed_precondition(str(error))
            case Cancelled():
                raise refusals.draining()
            case Failed(reason=reason):
                raise refusals.unavailable(f"no partition: {reason}")
            case other:
                raise TypeError(f"a partition was asked for, the pool answered {other!r}")

    async def _write(self, request: pb.RegisterJobRequest, partition: bytes, caller: str) -> JobRecord:
        """Make this attempt the current one, unless another planner made it, or a higher one, current before."""
        while True:
            before = await self._store.job(request.job_id)
            if before is not None and _is_answer(before, request.attempt):
                return before
            record = JobRecord(
                job_id=request.job_id,
                attempt=request.attempt,
                spec=request.spec.SerializeToString(deterministic=True),
                partition=partition,
                replicas=max(1, request.spec.cluster.replicas),
                owner=caller if before is None or before.closed else before.owner,
                version=before.version if before else 0,
            )
            written = await self._store.put_job(record)
            if written is not None:
                self._on_over(request.job_id, request.attempt)
                superseded = before.attempt if before else None
                about = logs.fields(job=written.job_id, attempt=written.attempt, superseded=superseded)
                _log.info("registered", extra=about)
                return written

    async def _admit(self, job_id: str, attempt: int, caller: str) -> None:
        """Refuse one job too many; those whose partition is being made are jobs to come, whoever still waits for it.

        A job is the client's who opened it, also where others register its later attempts.
        """
        owners = {admitted: owner for (admitted, _), owner in self._admitted.items()}
        owners |= {record.job_id: record.owner for record in await self._store.jobs() if not record.closed}
        owner = owners.pop(job_id, caller)
        self._check_room(max(len(owners), len(self._admitted)), self._max_jobs, "jobs", names.MAX_JOBS)
        of_client = max(Counter(owners.values())[owner], Counter(self._admitted.values())[owner])
        self._check_room(of_client, self._max_client_jobs, f"jobs of {owner}", names.MAX_CLIENT_JOBS)
        self._admitted[job_id, attempt] = owner

    @staticmethod
    def _check_room(taken: int, most: int, of_what: str, setting: str) -> None:
        if taken >= most:
            raise refusals.exhausted(f"{taken} {of_what} are open, {setting} allows no more", retry_ms=_FULL_RETRY_MS)


def _is_answer(record: JobRecord, attempt: int) -> bool:
    """Whether an attempt is registered; raises where it may not be any more."""
    if record.attempt < attempt:
        return False
    _check_open(record, attempt)
    return True


def _check_open(record: JobRecord, attempt: int) -> None:
    if attempt < record.attempt:
        raise refusals.failed_precondition(
            f"attempt {attempt} of job {record.job_id!r} was superseded by attempt {record.attempt}"
        )
    if record.closed:
        raise refusals.failed_precondition(
            f"job {record.job_id!r} is closed; a new start registers with a higher attempt than {record.attempt}"
        )


def _check_same_shape(asked: pb.JobSpec, registered: pb.JobSpec) -> None:
    """Refuse another model or cluster under a taken attempt; other costs are welcome, and ignored."""
    if _shape(asked) != _shape(registered):
        raise refusals.already_exists(
            "another rank registered this attempt with another model or cluster: modules, their inputs, layers and "
            "frozen flags, ranks and replicas must be the same on every rank"
        )


def _shape(spec: pb.JobSpec) -> object:
    modules = [
        (module.name, tuple(module.inputs), sum(run.count for run in module.layers), module.frozen)
        for module in spec.model.modules
    ]
    return modules, spec.cluster.ranks, max(1, spec.cluster.replicas)
