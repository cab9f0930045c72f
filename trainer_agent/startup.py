"""How a start of a job finds its number, its name and its partition: global rank 0 decides, all others are told."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc
from dip.errors import InvalidRequestError
from dip.partition import default_partition
from dip.planner.v1 import planner_pb2 as pb
from dip.validation import validate_partition
from dip.validation.limits import MAX_INT64

from trainer_agent import about
from trainer_agent.call_error import PlannerCallError
from trainer_agent.client import REGISTER_TIMEOUT_S
from trainer_agent.errors import TrainerAgentError
from trainer_agent.first_rank import decided_by_first_rank

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_agent.client import PlannerClient
    from trainer_agent.mesh import Mesh
    from trainer_agent.settings import AgentSettings

_log = about.logger(__name__)


class StartError(TrainerAgentError):
    """The job could not be registered: the planner refuses it. Raised on every process."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """One start of a training job, the same on all its processes.

    Parameters
    ----------
    registration
        Job id, attempt, spec and the partition to load: what a planner is told that does not know the job.
    registered
        Whether a planner knows it.
    own_name
        Whether the job's name was drawn for this start alone.
    """

    registration: pb.RegisterJobRequest
    registered: bool
    own_name: bool


def wall_clock_us() -> int:
    """Return microseconds since 1970."""
    return time.time_ns() // 1000


def agree_on_start(request: pb.RegisterJobRequest, decide: Callable[[], Start], mesh: Mesh) -> Start:
    """Let global rank 0 decide and tell the others; collective on the CPU.

    Parameters
    ----------
    request
        What this process would register: everything but what is decided.
    decide
        Called on global rank 0.
    mesh
        All processes.

    Raises
    ------
    StartError
        On all processes, where deciding failed.
    """

    def decided() -> tuple[bytes, bool, bool]:
        start = decide()
        told = pb.RegisterJobRequest(
            job_id=start.registration.job_id,
            attempt=start.registration.attempt,
            partition=start.registration.partition,
        )
        return told.SerializeToString(), start.registered, start.own_name

    told, registered, own_name = decided_by_first_rank(decided, mesh, what="start of the job", failure=StartError)
    registration = pb.RegisterJobRequest()
    registration.CopyFrom(request)
    registration.ClearField("partition")
    registration.MergeFromString(told)
    return Start(registration=registration, registered=registered, own_name=own_name)


class FirstRegistration:
    """Decides on a start: with the planner where one answers in time, alone otherwise.

    Parameters
    ----------
    request
        Spec, representative batch and, where one is loaded already, the partition.
    settings
        The job's name, and how long to wait.
    client
        The planner, or the planners of one store; None: none is configured.
    step_timeout_s
        How long the other processes wait for the decision.
    clock_us
        Wall clock in microseconds: the attempt is drawn from it.
    clock
        Seconds that only go forward.
    """

    def __init__(
        self,
        request: pb.RegisterJobRequest,
        settings: AgentSettings,
        client: PlannerClient | None,
        *,
        step_timeout_s: float,
        clock_us: Callable[[], int] = wall_clock_us,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._client = client
        self._wait_s = min(settings.connect_wait_s, step_timeout_s / 4)
        self._register_timeout_s = min(REGISTER_TIMEOUT_S, step_timeout_s / 4)
        self._own_name = settings.job_id is None
        self._request = pb.RegisterJobRequest()
        self._request.CopyFrom(request)
        self._request.attempt = clock_us()
        self._request.job_id = settings.job_id or f"job-{self._request.attempt}"

    def __call__(self) -> Start:
        """Decide.

        Raises
        ------
        PlannerCallError
            The planner refuses the job, for a reason that only its user can remove. Where it refuses who asks, training
            starts without it: what is wrong may be put right any time, and a job that restarts by night must train.
        """
        if self._client is None:
            _log.warning(
                "DIP_PLANNER_ENDPOINT is not set: every iteration runs the fixed fallback schedule; start a planner "
                "with `dip serve` and set it to host:port or unix:///path"
            )
            return self._alone()
        asked = pb.GetJobRequest(job_id=self._request.job_id)
        if not self._client.wait_until_reachable(asked, self._wait_s):
            why = self._client.why_unreachable(asked) if self._wait_s else None
            remedy, reason = "start one with `dip serve` or unset DIP_PLANNER_ENDPOINT", ""
            if why is not None:
                remedy, reason = (why.details, "") if why.explained else (remedy, f" ({why.details})")
            _log.warning(
                "no planner at %s: %s; training goes on with the fixed fallback schedule, and with plans as soon as a "
                "planner answers there%s",
                self._client.endpoints,
                remedy,
                reason,
            )
            return self._alone()
        return self._with_planners(self._client) or self._alone()

    def _with_planners(self, client: PlannerClient) -> Start | None:
        """Register with one planner after the other, each once, as long as there is time; None: all are away.

        They are told the same attempt: where one of them took it before it failed, the others answer as it would have.
        """
        until_s = self._clock() + self._register_timeout_s
        others = len(client.endpoints) - 1
        while True:
            try:
                return self._registered(client, timeout_s=until_s - self._clock())
            except PlannerCallError as error:
                if not (error.outage or error.denied):
                    raise
                if error.denied and others:
                    client.leave(client.endpoint, str(error))
                if not (others and (error.elsewhere or error.denied) and self._clock() < until_s):
                    _log.warning("%s; training goes on with the fixed fallback schedule until it answers", error)
                    break
                _log.warning("%s; planner %s is asked next", error, client.endpoint)
            others -= 1
        # Whether the registration counts, and with which partition, is not known: a newer attempt settles it.
        self._request.attempt += 1
        return None

    def _registered(self, client: PlannerClient, *, timeout_s: float) -> Start:
        try:
            answer = client.register_job(self._request, timeout_s=timeout_s)
        except PlannerCallError as error:
            if error.code != grpc.StatusCode.FAILED_PRECONDITION or not self._supersede(client):
                raise
            answer = client.register_job(self._request, timeout_s=timeout_s)
        self._check(answer.partition, client)
        self._request.partition.CopyFrom(answer.partition)
        return Start(registration=self._request, registered=True, own_name=self._own_name)

    def _check(self, partition: pb.Partition, client: PlannerClient) -> None:
        """Take no partition from a planner that is none of this model, or another than the one that is loaded.

        Raises
        ------
        PlannerCallError
            As where the planner is broken.
        """
        loaded, why = self._request.partition, ""
        try:
            validate_partition(self._request.spec, partition)
        except InvalidRequestError as error:
            why = f"it answers with a partition that is none of this job: {error}"
        if loaded.chunks and partition != loaded:
            why = "it answers with another partition than the one that is loaded"
        if why:
            raise PlannerCallError(
                rpc="RegisterJob", endpoint=str(client.endpoint), code=grpc.StatusCode.INTERNAL, details=why
            )

    def _supersede(self, client: PlannerClient) -> bool:
        """Take a number above the planner's, where an earlier start's clock was ahead of this one's."""
        try:
            known = client.get_job(pb.GetJobRequest(job_id=self._request.job_id)).status.attempt
        except PlannerCallError:  # what was refused is no attempt then, but the job itself
            return False
        if not self._request.attempt <= known < MAX_INT64:
            return False
        self._request.attempt = known + 1
        return True

    def _alone(self) -> Start:
        request = self._request
        if not request.partition.chunks:
            batch = request.representative_batch if request.HasField("representative_batch") else None
            request.partition.CopyFrom(default_partition(request.spec, batch))
        return Start(registration=request, registered=False, own_name=self._own_name)
