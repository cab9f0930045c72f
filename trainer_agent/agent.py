"""The agent beside a training process: where its plans come from."""

from __future__ import annotations

import atexit
import os
import time
from collections import deque
from typing import TYPE_CHECKING, TypeVar

from dip.planner.v1 import planner_pb2 as pb
from dip.validation import validate_batch, validate_job_spec, validate_partition

from trainer_agent import about
from trainer_agent.client import PlannerClient
from trainer_agent.errors import TrainerAgentError
from trainer_agent.loader import DEFAULT_LOOK_AHEAD, PlannedLoader
from trainer_agent.planner_link import PlannerLink
from trainer_agent.plans import TakenPlan
from trainer_agent.settings import AgentSettings, warn_of_misspelt_settings
from trainer_agent.startup import FirstRegistration, agree_on_start
from trainer_agent.stats import AgentStats, FallbackLog
from trainer_agent.window import Unplanned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trainer_agent.mesh import Mesh
    from trainer_agent.startup import Start

Batch = TypeVar("Batch")

# Batches that were handed out and not stepped: a loop may skip some, or fetch one ahead to move it to its device.
MAX_HANDED_OUT = 4


class TrainerAgent:
    """Hands the executor a plan for every batch, where there is one, and never stops training where there is none.

    Made by `connect`, used from one thread, closed at the end (at the latest with the process).

    Parameters
    ----------
    start
        The start of the job, the same on all processes.
    mesh
        Which process this is.
    link
        The planner; None: none is configured.
    settings
        How long iterations wait.
    """

    def __init__(self, start: Start, mesh: Mesh, link: PlannerLink | None, settings: AgentSettings) -> None:
        self._start = start
        self._mesh = mesh
        self._link = link
        self._wait_s = settings.schedule_wait_ms / 1000
        self._pid = os.getpid()
        self._next_iteration = 0
        self._metadata: dict[int, pb.Batch] = {}
        self._handed_out: deque[tuple[int, object]] = deque()
        self._iterations = self._without_plan = self._waited_us = 0
        self._fallbacks = FallbackLog(quiet=link is None)
        self._closed = False
        atexit.register(self.close)

    @classmethod
    def connect(
        cls,
        spec: pb.JobSpec,
        mesh: Mesh,
        *,
        settings: AgentSettings | None = None,
        representative_batch: pb.Batch | None = None,
        partition: pb.Partition | None = None,
    ) -> TrainerAgent:
        """Register this start of the job and learn what to load; collective over all processes.

        A planner that does not answer is waited for only shortly (``DIP_CONNECT_WAIT_S``). Training then starts on the
        default partition with the fixed fallback schedule, and runs plans as soon as a planner answers.

        Parameters
        ----------
        spec
            The job, the same on all processes.
        mesh
            Which process this is.
        settings
            Endpoints, names and waiting times; from the environment where not given.
        representative_batch
            Metadata of a batch like those to come: the planner partitions the model for it.
        partition
            What is loaded already, in a job that resumes; kept as it is.

        Raises
        ------
        InvalidRequestError
            The spec, batch or partition break the contract.
        ValueError
            A variable of the environment is not what is allowed, or a file that it names cannot be used.
        StartError
            The planner refuses the job. Raised on every process.
        """
        if settings is None:
            settings = AgentSettings.from_environment()
            if mesh.replica == mesh.rank == 0:
                warn_of_misspelt_settings()
        validate_job_spec(spec)
        if representative_batch is not None:
            validate_batch(spec, representative_batch, path="representative_batch")
        if partition is not None:
            validate_partition(spec, partition)
        request = pb.RegisterJobRequest(spec=spec, representative_batch=representative_batch, partition=partition)
        client = None if settings.endpoints is None else PlannerClient(settings.endpoints, files=settings.files)
        first = FirstRegistration(request, settings, client, step_timeout_s=mesh.timeout.total_seconds())
        start = agree_on_start(request, first, mesh)
        job = start.registration
        about.is_at(job=job.job_id, attempt=job.attempt, replica=mesh.replica, rank=mesh.rank)
        link = None if client is None else PlannerLink(client, start, replica=mesh.replica, rank=mesh.rank)
        return cls(start, mesh, link, settings)

    @property
    def spec(self) -> pb.JobSpec:
        """The job."""
        return self._start.registration.spec

    @property
    def partition(self) -> pb.Partition:
        """Where every layer lives, for the whole start."""
        return self._start.registration.partition

    @property
    def mesh(self) -> Mesh:
        """Which process this is."""
        return self._mesh

    @property
    def attempt(self) -> int:
        """Number of this start of the job."""
        return self._start.registration.attempt

    @property
    def job_id(self) -> str:
        """The job's name at the planner."""
        return self._start.registration.job_id

    @property
    def stats(self) -> AgentStats:
        """What was counted so far."""
        link = self._link
        return AgentStats(
            iterations=self._iterations,
            without_plan=self._without_plan,
            fallbacks=self._fallbacks.count,
            last_fallback_reason=self._fallbacks.last_reason,
            waited_us=self._waited_us,
            reconnects=link.reconnects if link else 0,
            late=link.late if link else 0,
            dropped_reports=link.dropped_reports if link else 0,
        )

    def wrap_loader(
        self,
        loader: Iterable[Batch],
        describe: Callable[[Batch], pb.Batch],
        *,
        look_ahead: int = DEFAULT_LOOK_AHEAD,
        start_iteration: int | None = None,
    ) -> PlannedLoader[Batch]:
        """Yield a loader's batches while those behind them are planned; what it yields goes to ``Executor.step``.

        Parameters
        ----------
        loader
            The user's loader; all ranks of a replica must get equal batches from theirs. Move batches to the device
            inside it: the very object that comes out is what ``step`` takes.
        describe
            Makes the metadata of a batch: for each microbatch and sample, the sizes of its instances in each module.
            Called on every rank; it must depend on the batch alone.
        look_ahead
            How many batches beyond the one that is trained on the planner gets to know.
        start_iteration
            Number of the first batch, in a job that resumes. Not given: 0, or on from the last batch.
        """
        return PlannedLoader(self, loader, describe, look_ahead=look_ahead, start_iteration=start_iteration)

    def begin_at(self, iteration: int | None) -> None:
        """Let the next announced batch have this number; None: go on after the last.

        Raises
        ------
        ValueError
            The number, or a later one, was announced before.
        """
        if iteration is None:
            return
        if iteration < self._next_iteration:
            raise ValueError(
                f"start_iteration: {iteration}; this start of the job has announced batches up to "
                f"{self._next_iteration - 1}: leave it out to go on, or connect again to resume at an older iteration"
            )
        self._next_iteration = iteration

    def announce(self, metadata: pb.Batch) -> int:
        """Number the next batch and have it planned.

        Raises
        ------
        InvalidRequestError
            The metadata break the contract.
        TrainerAgentError
            They are no `Batch` of the contract.
        """
        self._check_usable()
        if not isinstance(metadata, pb.Batch):
            raise TrainerAgentError(
                f"describe(batch) returned a {type(metadata).__name__}; must be a dip.planner.v1.planner_pb2.Batch"
            )
        validate_batch(self.spec, metadata, path="describe(batch)")
        iteration = self._next_iteration
        self._next_iteration += 1
        kept = pb.Batch()
        kept.CopyFrom(metadata)  # describe may fill one message again and again
        self._metadata[iteration] = kept
        if self._link is not None:
            self._link.expect(iteration, kept)
        return iteration

    def hand_out(self, iteration: int, batch: object) -> None:
        """Note that the training loop gets this batch now."""
        self._handed_out.append((iteration, batch))
        if len(self._handed_out) > MAX_HANDED_OUT:
            self.abandon([self._handed_out.popleft()[0]])

    def abandon(self, iterations: Iterable[int]) -> None:
        """Let go of batches that will not be trained on."""
        iterations = list(iterations)
        for iteration in iterations:
            self._metadata.pop(iteration, None)
        if self._link is not None:
            self._link.abandon(iterations)

    def take(self, batch: object) -> TakenPlan:
        """Return the plan for a batch that `wrap_loader` yielded, if it is there in time.

        Raises
        ------
        TrainerAgentError
            The batch is none of those that were yielded last, or the planner refused what this program sent.
        """
        self._check_usable()
        iteration = self._iteration_of(batch)
        metadata = self._metadata.pop(iteration)
        self._iterations += 1
        if self._link is None:
            self._without_plan += 1
            return TakenPlan(
                iteration=iteration, batch=metadata, plan=None, waited_us=0, reason="no planner is configured"
            )
        before_ns = time.monotonic_ns()
        found = self._link.take(iteration, self._wait_s)
        waited_us = (time.monotonic_ns() - before_ns) // 1000
        self._waited_us += waited_us
        if isinstance(found, Unplanned):
            self._without_plan += 1
            return TakenPlan(iteration=iteration, batch=metadata, plan=None, waited_us=waited_us, reason=found.reason)
        return TakenPlan(iteration=iteration, batch=metadata, plan=found, waited_us=waited_us)

    def report(self, report: pb.ReportExecutionRequest) -> None:
        """Send what was measured, in the background."""
        if report.fallback:
            self._fallbacks.note(report.iteration, report.fallback_reason)
        if self._link is not None:
            self._link.report(report)

    def close(self) -> None:
        """Send the last reports, end the background threads and the connection. May be called again."""
        if self._closed or self._pid != os.getpid():
            return
        self._closed = True
        atexit.unregister(self.close)
        if self._link is not None:
            self._link.close()

    def _check_usable(self) -> None:
        if self._pid != os.getpid():
            raise TrainerAgentError(f"the agent belongs to process {self._pid}; this is {os.getpid()}, forked from it")
        if self._closed:
            raise TrainerAgentError("the agent is closed")

    def _iteration_of(self, batch: object) -> int:
        for position, (iteration, handed_out) in enumerate(self._handed_out):
            if handed_out is batch:
                del self._handed_out[position]
                return iteration
        raise TrainerAgentError(
            "this batch is not one that wrap_loader yielded last, or was stepped before: give step() the very object "
            "that the loop gets, and move batches to the device inside the loader that is wrapped"
        )
