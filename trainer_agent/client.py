"""The agent's connection to its planner: one lazily opened gRPC channel, calls with deadlines, typed errors."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Protocol, TypeVar

import grpc
from dip.planner.v1 import planner_pb2_grpc as pb_grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from trainer_agent.errors import TrainerAgentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dip.planner.v1 import planner_pb2 as pb

    from trainer_agent.endpoint import Endpoint

CALL_TIMEOUT_S = 10.0
REGISTER_TIMEOUT_S = 60.0
MAX_MESSAGE_BYTES = 64 * 1024 * 1024

_Answer = TypeVar("_Answer")

_CONTRACT_CODES = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.ALREADY_EXISTS,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)
# Besides what planners ask to retry: what this side gave up on. Every call here may be made twice.
_RETRYABLE_CODES = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
    }
)

# Channels of the process that this one was forked from: kept, because closing them here would disturb their owner.
_INHERITED: list[grpc.Channel] = []


class PlannerCallError(TrainerAgentError):
    """A call to the planner that did not succeed.

    Parameters
    ----------
    rpc
        Name of the call.
    endpoint
        Where it went.
    code
        Its gRPC status.
    details
        What the planner, or gRPC on its behalf, said about it.
    retry_after_s
        How long the planner asks to wait before the next try; 0 where it does not.
    """

    def __init__(
        self, *, rpc: str, endpoint: str, code: grpc.StatusCode, details: str, retry_after_s: float = 0.0
    ) -> None:
        super().__init__(f"{rpc} at planner {endpoint}: {code.name}: {details}")
        self.rpc = rpc
        self.endpoint = endpoint
        self.code = code
        self.details = details
        self.retry_after_s = retry_after_s

    @property
    def outage(self) -> bool:
        """Whether the planner is away, overloaded or broken, rather than refusing what it was asked."""
        return self.code not in _CONTRACT_CODES

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.code in _RETRYABLE_CODES


class ScheduleStream(Protocol):
    """An open stream of one rank's schedules; iterating raises `PlannerCallError` when it breaks."""

    def __iter__(self) -> Iterator[pb.StreamSchedulesResponse]:
        """Yield the answers as they come."""
        ...

    def cancel(self) -> object:
        """End the stream from this side."""
        ...


class PlannerClient:
    """Calls of a trainer to one planner. Safe to use from several threads, and after a fork.

    The channel is opened with the first call. A forked process (a data loader's worker) opens its own with its first
    call and leaves its parent's alone.

    Parameters
    ----------
    endpoint
        Where the planner listens.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._channel: grpc.Channel | None = None
        self._closed = False

    def wait_until_reachable(self, timeout_s: float) -> bool:
        """Return whether a planner answers at the endpoint, as soon as one does or after the timeout."""
        with self._guard():
            ready = grpc.channel_ready_future(self._open())
        try:
            ready.result(timeout=timeout_s)
        except grpc.FutureTimeoutError:
            ready.cancel()
            return False
        return True

    def register_job(
        self, request: pb.RegisterJobRequest, *, timeout_s: float = REGISTER_TIMEOUT_S
    ) -> pb.RegisterJobResponse:
        """Register an attempt of a job; raises `PlannerCallError`."""
        return self._call("RegisterJob", lambda stub: stub.RegisterJob.future(request, timeout=timeout_s))

    def submit_batch(self, request: pb.SubmitBatchRequest, *, timeout_s: float = CALL_TIMEOUT_S) -> None:
        """Hand over the metadata of one iteration; raises `PlannerCallError`."""
        self._call("SubmitBatch", lambda stub: stub.SubmitBatch.future(request, timeout=timeout_s))

    def report_execution(self, request: pb.ReportExecutionRequest, *, timeout_s: float = CALL_TIMEOUT_S) -> None:
        """Hand over what a rank measured; raises `PlannerCallError`."""
        self._call("ReportExecution", lambda stub: stub.ReportExecution.future(request, timeout=timeout_s))

    def get_job(self, request: pb.GetJobRequest, *, timeout_s: float = CALL_TIMEOUT_S) -> pb.GetJobResponse:
        """Ask what the planner knows of a job; raises `PlannerCallError`."""
        return self._call("GetJob", lambda stub: stub.GetJob.future(request, timeout=timeout_s))

    def close_job(self, request: pb.CloseJobRequest, *, timeout_s: float = CALL_TIMEOUT_S) -> None:
        """End a job; raises `PlannerCallError`."""
        self._call("CloseJob", lambda stub: stub.CloseJob.future(request, timeout=timeout_s))

    def stream_schedules(self, request: pb.StreamSchedulesRequest) -> ScheduleStream:
        """Open the stream of one rank's schedules; it stays open until it breaks or is cancelled."""
        rpc = "StreamSchedules"
        with self._guard():
            call = self._begin(rpc, lambda stub: stub.StreamSchedules(request))
        return _Stream(call, self._error, rpc)

    def close(self) -> None:
        """Cancel what is under way and close the channel; calls that follow fail. Does nothing in a forked process."""
        if self._pid != os.getpid():
            return
        with self._lock:
            self._closed = True
            channel, self._channel = self._channel, None
        if channel is not None:
            channel.close()

    def _guard(self) -> threading.Lock:
        """Return the lock of this process; a forked one starts afresh, whatever its parent's threads were doing."""
        pid = os.getpid()
        if self._pid != pid:
            self._lock = threading.Lock()
            if self._channel is not None:
                _INHERITED.append(self._channel)
                self._channel = None
            self._pid = pid
        return self._lock

    def _open(self) -> grpc.Channel:
        if self._channel is None:
            self._channel = grpc.insecure_channel(self.endpoint.target, options=channel_options(self.endpoint))
        return self._channel

    def _begin(self, rpc: str, begin: Callable[[pb_grpc.PlannerServiceStub], _Answer]) -> _Answer:
        if self._closed:
            raise PlannerCallError(
                rpc=rpc, endpoint=str(self.endpoint), code=grpc.StatusCode.CANCELLED, details="the client is closed"
            )
        return begin(pb_grpc.PlannerServiceStub(self._open()))

    def _call(self, rpc: str, begin: Callable[[pb_grpc.PlannerServiceStub], grpc.Future[_Answer]]) -> _Answer:
        with self._guard():
            call = self._begin(rpc, begin)
        try:
            return call.result()
        except grpc.RpcError as error:
            raise self._error(rpc, error) from error
        except grpc.FutureCancelledError as error:
            raise PlannerCallError(
                rpc=rpc, endpoint=str(self.endpoint), code=grpc.StatusCode.CANCELLED, details="cancelled"
            ) from error

    def _error(self, rpc: str, error: grpc.RpcError) -> PlannerCallError:
        # Every error that gRPC raises for a call is the call itself; its type stubs know only the bare RpcError.
        if not isinstance(error, grpc.Call):
            return PlannerCallError(
                rpc=rpc, endpoint=str(self.endpoint), code=grpc.StatusCode.UNKNOWN, details=str(error)
            )
        return PlannerCallError(
            rpc=rpc,
            endpoint=str(self.endpoint),
            code=error.code(),
            details=error.details() or "no details",
            retry_after_s=_retry_after_s(error),
        )


class _Stream:
    """A stream whose gRPC errors come out as `PlannerCallError`."""

    def __init__(
        self,
        call: ScheduleStream,
        to_error: Callable[[str, grpc.RpcError], PlannerCallError],
        rpc: str,
    ) -> None:
        self._call = call
        self._to_error = to_error
        self._rpc = rpc

    def __iter__(self) -> Iterator[pb.StreamSchedulesResponse]:
        try:
            yield from self._call
        except grpc.RpcError as error:
            raise self._to_error(self._rpc, error) from error

    def cancel(self) -> None:
        self._call.cancel()


def channel_options(endpoint: Endpoint) -> list[tuple[str, int]]:
    """Return gRPC's settings for a channel to a planner.

    Pings every 30 s keep idle streams alive through middleboxes; a planner must allow them that often. Reconnection
    is left to the callers' own backoff, so gRPC's own is kept below it. Channels share no connections, so that one
    agent's closing or backing off is no other's matter.
    """
    return [
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.initial_reconnect_backoff_ms", 50),
        ("grpc.min_reconnect_backoff_ms", 1_000),
        ("grpc.max_reconnect_backoff_ms", 1_000),
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.use_local_subchannel_pool", 1),
        *([("grpc.enable_http_proxy", 0)] if endpoint.local else []),
    ]


def _retry_after_s(call: grpc.Call) -> float:
    try:
        status = rpc_status.from_call(call)
    except ValueError:  # the trailing metadata contradicts the call: nothing to learn from it
        return 0.0
    for detail in status.details if status is not None else ():
        info = error_details_pb2.RetryInfo()
        if detail.Unpack(info):
            return max(0.0, info.retry_delay.seconds + info.retry_delay.nanos * 1e-9)
    return 0.0
