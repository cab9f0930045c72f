"""A planner in this process, over real gRPC, that does what a test's script says: the far end of the agent's tests.

It keeps registrations and batches as a planner does and plans them with the fixed fallback, at once or when told to.
Failures are scripted: ``fail_at("SubmitBatch", 2, code)`` lets the second such call fail. Several may share a store, as
planners do.
"""

# ruff: noqa: N802 - the service names its methods.

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from concurrent import futures
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import grpc
from dip.digests import batch_digest, partition_digest, schedule_digest
from dip.fallback import fallback_plan
from dip.partition import default_partition
from dip.planner.v1 import planner_pb2 as pb
from dip.planner.v1 import planner_pb2_grpc as pb_grpc
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status
from waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from google.protobuf.message import Message

SERVICE = pb.DESCRIPTOR.services_by_name["PlannerService"]


@dataclass(frozen=True)
class Failure:
    """How a scripted call fails."""

    code: grpc.StatusCode
    details: str
    retry_after_s: float

    def abort(self, context: grpc.ServicerContext) -> NoReturn:
        if not self.retry_after_s:
            context.abort(self.code, self.details)
        delay = duration_pb2.Duration()
        delay.FromNanoseconds(int(self.retry_after_s * 1e9))
        detail = any_pb2.Any()
        detail.Pack(error_details_pb2.RetryInfo(retry_delay=delay))
        status = status_pb2.Status(code=self.code.value[0], message=self.details, details=[detail])
        context.abort_with_status(rpc_status.to_status(status))
        raise AssertionError("abort_with_status raises")


def streamed(plan: pb.Plan, batch: pb.Batch, rank: int) -> pb.StreamedSchedule:
    """Return one rank's part of a plan."""
    return pb.StreamedSchedule(
        sub_microbatches=plan.sub_microbatches,
        schedule=plan.ranks[rank],
        batch_digest=batch_digest(batch),
        partition_digest=partition_digest(plan.partition),
        schedule_digests=[schedule_digest(schedule) for schedule in plan.ranks],
        makespan_us=plan.makespan_us,
    )


class FakeStore:
    """What planners that share a store all know of one job. Guarded by ``state``, which is told of every change."""

    def __init__(self) -> None:
        self.state = threading.Condition()
        self.registered: pb.RegisterJobRequest | None = None
        self.batches: dict[int, pb.Batch] = {}
        self.answers: dict[int, dict[int, pb.StreamSchedulesResponse]] = defaultdict(dict)

    def ready(self, rank: int, first_iteration: int) -> pb.StreamSchedulesResponse | None:
        """Return the next answer for a rank."""
        ready = [iteration for iteration in self.answers[rank] if iteration >= first_iteration]
        return self.answers[rank][min(ready)] if ready else None


class FakePlanner(pb_grpc.PlannerServiceServicer):
    """A scripted planner of one job.

    Parameters
    ----------
    plans_at_once
        Whether a batch's plan is streamed as soon as the batch is submitted; otherwise when `plan` is called.
    partition
        What a registration without a partition gets; the default one where not given.
    store
        What it shares with other planners; its own where not given.
    tokens
        The bearer tokens that it takes, until a test replaces them; None: it asks for none.
    """

    def __init__(
        self,
        *,
        plans_at_once: bool = True,
        partition: pb.Partition | None = None,
        store: FakeStore | None = None,
        tokens: frozenset[str] | None = None,
    ) -> None:
        self.plans_at_once = plans_at_once
        self.partition = partition
        self.tokens = tokens
        self.peers: dict[str, list[str]] = defaultdict(list)
        self.shown: list[str] = []
        self.calls: Counter[str] = Counter()
        self.requests: dict[str, list[Message]] = defaultdict(list)
        self._failures: dict[tuple[str, int], Failure] = {}
        self._store = store or FakeStore()
        self._state = self._store.state
        self._submitted: list[int] = []
        self._hanging: frozenset[str] = frozenset()
        self._broken: list[tuple[int, Failure | None]] = []
        self._server: grpc.Server | None = None

    # ------------------------------------------------------------ the script

    def listen(self, address: str = "127.0.0.1:0", credentials: grpc.ServerCredentials | None = None) -> str:
        """Start to listen, with TLS if there are credentials; return the endpoint."""
        self._server = grpc.server(futures.ThreadPoolExecutor(16), options=[("grpc.so_reuseport", 0)])
        pb_grpc.add_PlannerServiceServicer_to_server(self, self._server)
        if credentials is None:
            port = self._server.add_insecure_port(address)
        else:
            port = self._server.add_secure_port(address, credentials)
        self._server.start()
        return address if address.startswith("unix:") else f"127.0.0.1:{port}"

    def stop(self) -> None:
        """Vanish: every call under way ends, nobody listens any more."""
        if self._server is not None:
            self.go_on()
            self.break_streams(grpc.StatusCode.UNAVAILABLE, "the planner vanished")
            self._server.stop(grace=None).wait(PATIENCE_S)
            self._server = None

    def fail_at(
        self, rpc: str, call: int, code: grpc.StatusCode, details: str = "scripted", retry_after_s: float = 0.0
    ) -> None:
        """Let the ``call``-th call of an RPC (from 1) fail."""
        self._failures[rpc, call] = Failure(code, details, retry_after_s)

    def lose_memory(self) -> None:
        """Forget jobs and batches, as a planner that was killed and started again; its streams break."""
        with self._state:
            self._store.registered = None
            self._store.batches.clear()
            self._store.answers.clear()
        self.break_streams(grpc.StatusCode.UNAVAILABLE)

    def break_streams(self, code: grpc.StatusCode | None = None, details: str = "scripted") -> None:
        """End every open stream, with a status or as if all were said."""
        with self._state:
            self._broken.append((self.calls["StreamSchedules"], Failure(code, details, 0.0) if code else None))
            self._state.notify_all()

    def hang(self, *rpcs: str) -> None:
        """Take calls of these RPCs, or of all, and neither answer them nor say anything on a stream, until `go_on`."""
        with self._state:
            self._hanging = frozenset(rpcs or (method.name for method in SERVICE.methods))

    def go_on(self) -> None:
        """Answer again, what is asked and what was."""
        with self._state:
            self._hanging = frozenset()
            self._state.notify_all()

    def plan(self, iteration: int) -> None:
        """Plan a submitted batch for all ranks."""
        with self._state:
            registered, batch = self._store.registered, self._store.batches[iteration]
        assert registered is not None
        plan = fallback_plan(registered.spec, registered.partition, batch)
        for schedule in plan.ranks:
            part = streamed(plan, batch, schedule.rank)
            self.answer(schedule.rank, pb.StreamSchedulesResponse(iteration=iteration, schedule=part))

    def answer(self, rank: int, answer: pb.StreamSchedulesResponse) -> None:
        """Stream this to a rank, whatever it is."""
        with self._state:
            self._store.answers[rank][answer.iteration] = answer
            self._state.notify_all()

    def wait_for_calls(self, rpc: str, number: int) -> None:
        """Wait until an RPC was called so often."""
        with self._state:
            assert self._state.wait_for(lambda: self.calls[rpc] >= number, PATIENCE_S), (rpc, self.calls)

    @property
    def submitted(self) -> list[int]:
        """Iterations of all submissions that were accepted or refused, in order."""
        with self._state:
            return list(self._submitted)

    # ------------------------------------------------------------ the service

    def RegisterJob(self, request: pb.RegisterJobRequest, context: grpc.ServicerContext) -> pb.RegisterJobResponse:
        self._enter("RegisterJob", request, context)
        with self._state:
            registered = self._store.registered
            if registered is None or registered.attempt < request.attempt:
                registered = pb.RegisterJobRequest()
                registered.CopyFrom(request)
                if not request.partition.chunks:
                    chosen = self.partition or default_partition(request.spec, None)
                    registered.partition.CopyFrom(chosen)
                self._store.registered = registered
            return pb.RegisterJobResponse(partition=registered.partition)

    def SubmitBatch(self, request: pb.SubmitBatchRequest, context: grpc.ServicerContext) -> pb.SubmitBatchResponse:
        self._enter("SubmitBatch", request, context)
        with self._state:  # also while it is planned: what a test says next holds for the calls that come next
            self._known(request.attempt, context)
            self._submitted.append(request.iteration)
            known = self._store.batches.setdefault(request.iteration, request.batch)
            if known != request.batch:
                context.abort(grpc.StatusCode.ALREADY_EXISTS, "another batch")
            if self.plans_at_once:
                self.plan(request.iteration)
        return pb.SubmitBatchResponse()

    def StreamSchedules(
        self, request: pb.StreamSchedulesRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.StreamSchedulesResponse]:
        opened = self._enter("StreamSchedules", request, context)
        self._known(request.attempt, context)
        context.add_callback(self._look_up)
        next_iteration = request.first_iteration
        while True:
            end, answer = self._next_event(context, opened, request.rank, next_iteration)
            if end:
                if end[0] is not None:
                    end[0].abort(context)
                return
            if answer is None:
                context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "nothing was scripted for this stream")
            next_iteration = answer.iteration + 1
            yield answer

    def ReportExecution(
        self, request: pb.ReportExecutionRequest, context: grpc.ServicerContext
    ) -> pb.ReportExecutionResponse:
        self._enter("ReportExecution", request, context)
        self._known(request.attempt, context)
        return pb.ReportExecutionResponse()

    def GetJob(self, request: pb.GetJobRequest, context: grpc.ServicerContext) -> pb.GetJobResponse:
        self._enter("GetJob", request, context)
        registered = self._store.registered
        if registered is None:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such job")
        return pb.GetJobResponse(
            status=pb.JobStatus(job_id=request.job_id, attempt=registered.attempt),
            spec=registered.spec,
            partition=registered.partition,
        )

    def CloseJob(self, request: pb.CloseJobRequest, context: grpc.ServicerContext) -> pb.CloseJobResponse:
        self._enter("CloseJob", request, context)
        return pb.CloseJobResponse()

    def _enter(self, rpc: str, request: Message, context: grpc.ServicerContext) -> int:
        """Count a call, and let it fail or wait as scripted; returns its number.

        How it fares is decided as it is counted: whoever waits for it may change the script then.
        """
        # A test that calls a method itself has no context.
        shown = str(dict(context.invocation_metadata()).get("authorization", "")) if context else ""
        with self._state:
            self.calls[rpc] += 1
            number = self.calls[rpc]
            self.requests[rpc].append(request)
            self.peers[rpc].append(context.peer() if context else "")
            self.shown.append(shown)
            failure = self._failures.pop((rpc, number), None)
            turned_away = self.tokens is not None and shown not in {f"Bearer {token}" for token in self.tokens}
            self._state.notify_all()
            assert self._state.wait_for(lambda: rpc not in self._hanging, PATIENCE_S), f"{rpc} hangs for too long"
        if failure is not None:
            failure.abort(context)
        if turned_away:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is not known here")
        return number

    def _known(self, attempt: int, context: grpc.ServicerContext) -> None:
        with self._state:
            registered = self._store.registered
        if registered is None or registered.attempt < attempt:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such job")
        if registered.attempt > attempt:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"attempt {registered.attempt} is newer")

    def _look_up(self) -> None:
        """Have streams see that one of them was left."""
        with self._state:
            self._state.notify_all()

    def _next_event(
        self, context: grpc.ServicerContext, opened: int, rank: int, first_iteration: int
    ) -> tuple[list[Failure | None], pb.StreamSchedulesResponse | None]:
        with self._state:

            def something() -> object:
                hangs = "StreamSchedules" in self._hanging
                ready = not hangs and self._store.ready(rank, first_iteration)
                return self._end_of(opened) or ready or not context.is_active()

            self._state.wait_for(something, PATIENCE_S)
            return self._end_of(opened), self._store.ready(rank, first_iteration)

    def _end_of(self, opened: int) -> list[Failure | None]:
        return [failure for until, failure in self._broken if opened <= until][:1]


def eventually(condition: Callable[[], object]) -> None:
    """Wait until something that a background thread brings about is so."""
    until(condition)
