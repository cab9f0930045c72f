"""An agent's calls to its planner, or to the planners of one store in turn: with deadlines and typed errors."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import grpc
from dip.connecting import ClientFiles, Credentials, CredentialSource
from dip.planner.v1 import planner_pb2_grpc as pb_grpc

from trainer_agent.call_error import PlannerCallError, call_error
from trainer_agent.connections import Connections

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dip.connecting import Endpoint, Endpoints
    from dip.planner.v1 import planner_pb2 as pb
    from grpc import _CallFuture, _CallIterator

    from trainer_agent.connections import Connection


CALL_TIMEOUT_S = 10.0
REGISTER_TIMEOUT_S = 60.0
# How long the preferred planner alone is waited for at the start, where another answers sooner.
HEAD_START_S = 0.25
# How long gRPC may take to say which channels are connected.
CONNECTED_S = 0.5
# How long gRPC may take to say why none is.
EXPLAINED_S = 1.0

_Request = TypeVar("_Request")
_Answer = TypeVar("_Answer")
_Call = TypeVar("_Call", bound=grpc.RpcContext)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Begun(Generic[_Call]):
    """A call on its way: on which connection, with which credentials."""

    rpc: str
    connection: Connection
    credentials: Credentials
    call: _Call


class PlannerClient:
    """Calls of a trainer to its planner. Safe to use from several threads, and after a fork.

    Where several planners share a store, one is spoken to at a time. A call or a stream that ends with an outage moves
    on to the next of them (see `PlannerCallError.elsewhere`), which ends whatever is under way at the one that failed;
    the failed call itself is its caller's to make again. `Connections` tells of the return to the preferred one.

    Parameters
    ----------
    endpoints
        Where the planners listen.
    files
        What to connect with. They are read again for every call: a token that was changed goes out with the next, and
        certificates that were changed on a new channel, while a stream stays on the one that it has.
    connections
        The planners' channels; made where not given.

    Raises
    ------
    ClientFilesError
        A file cannot be used. Later that is no error: what was read last stands.
    """

    def __init__(
        self, endpoints: Endpoints, *, files: ClientFiles | None = None, connections: Connections | None = None
    ) -> None:
        files = ClientFiles() if files is None else files
        files.check(endpoints)
        self.endpoints = endpoints
        self._files = files
        self._credentials = CredentialSource(files)
        self._denied: tuple[Endpoint, Credentials] | None = None
        self._connections = connections or Connections(endpoints)

    @property
    def endpoint(self) -> Endpoint:
        """Where the planner listens that is spoken to."""
        return self._connections.endpoint

    def wait_until_reachable(self, request: pb.GetJobRequest, timeout_s: float) -> bool:
        """Ask all planners about the job and speak to one that answers, whatever it answers.

        The preferred one has a head start: without it whoever is nearest would be taken. Where none answers, one that
        can be connected to counts too: it is there, and may only be busy.

        Returns
        -------
        bool
            Whether there is one: as soon as it answers, or after the timeout.
        """
        heard: SimpleQueue[tuple[int, bool]] = SimpleQueue()

        def note(turn: int, done: grpc.Future[pb.GetJobResponse]) -> None:
            heard.put((turn, _is_answer(done)))

        connections, calls = self._ask_all(request, timeout_s=timeout_s, wait_for_ready=True)
        for turn, call in enumerate(calls):
            call.add_done_callback(partial(note, turn))
        found = _first_to_answer(heard, len(calls))
        for call in calls:
            call.cancel()
        if found is None and timeout_s > 0:
            found = _first_connected(connections)
        if found is None:
            return False
        self._connections.speak_to(connections[found].endpoint)
        return True

    def why_unreachable(self, request: pb.GetJobRequest) -> PlannerCallError | None:
        """Ask all planners once more, and tell why the first does not answer that did not; None: all did by now."""
        connections, calls = self._ask_all(request, timeout_s=EXPLAINED_S, wait_for_ready=False)
        for connection, call in zip(connections, calls, strict=True):
            try:
                call.result()
            except (grpc.RpcError, grpc.FutureCancelledError) as cause:
                return call_error("GetJob", connection, self._files, cause)
        return None

    def _ask_all(
        self, request: pb.GetJobRequest, *, timeout_s: float, wait_for_ready: bool
    ) -> tuple[list[Connection], list[_CallFuture[pb.GetJobResponse]]]:
        credentials = self._credentials.current()
        with self._connections.all(credentials) as connections:
            calls = [
                pb_grpc.PlannerServiceStub(connection.channel).GetJob.future(
                    request, timeout=timeout_s, wait_for_ready=wait_for_ready, metadata=credentials.metadata()
                )
                for connection in connections
            ]
            for connection in connections:
                connection.under_way += 1
        for connection, call in zip(connections, calls, strict=True):
            self._connections.watch(connection, call)
        return connections, calls

    def would_ask_otherwise(self) -> bool:
        """Return whether a call would go to another planner than the last one that was denied, or show something else.

        It goes to another one where a thread has left, meanwhile, the planner that turned another thread away.
        """
        return (self.endpoint, self._credentials.current()) != self._denied

    def leave(self, endpoint: Endpoint, reason: str) -> bool:
        """End what is under way at a planner with CANCELLED, and speak to the next; return whether there is one."""
        connection = self._connections.open_at(endpoint)
        return connection is not None and self._connections.leave(connection, reason)

    def look_for_preferred(self, request: pb.GetJobRequest) -> None:
        """Ask the preferred planner about the job, in the background, if another is spoken to and it is time.

        If it answers, be it that it does not know the job, calls go there again. Streams stay where they are.
        """
        credentials = self._credentials.current()
        with self._connections.preferred_if_due(credentials) as connection:
            if connection is None:
                return
            call = pb_grpc.PlannerServiceStub(connection.channel).GetJob.future(
                request, timeout=CALL_TIMEOUT_S, metadata=credentials.metadata()
            )
            connection.under_way += 1
        self._connections.watch(connection, call)

        def heard(done: grpc.Future[pb.GetJobResponse]) -> None:
            # Runs on a thread of the channel: the planner cannot be left here, as that closes the channel.
            back = True
            try:
                done.result()
            except (grpc.RpcError, grpc.FutureCancelledError) as cause:
                error = call_error("GetJob", connection, self._files, cause)
                back = not (error.outage or error.denied)
            self._connections.returned(connection, back=back)

        call.add_done_callback(heard)

    def register_job(
        self, request: pb.RegisterJobRequest, *, timeout_s: float = REGISTER_TIMEOUT_S
    ) -> pb.RegisterJobResponse:
        """Register an attempt of a job; raises `PlannerCallError`."""
        return self._call("RegisterJob", lambda stub: stub.RegisterJob, request, timeout_s)

    def submit_batch(self, request: pb.SubmitBatchRequest, *, timeout_s: float = CALL_TIMEOUT_S) -> None:
        """Hand over the metadata of one iteration; raises `PlannerCallError`."""
        self._call("SubmitBatch", lambda stub: stub.SubmitBatch, request, timeout_s)

    def report_execution(self, request: pb.ReportExecutionRequest, *, timeout_s: float = CALL_TIMEOUT_S) -> None:
        """Hand over what a rank measured; raises `PlannerCallError`."""
        self._call("ReportExecution", lambda stub: stub.ReportExecution, request, timeout_s)

    def get_job(self, request: pb.GetJobRequest, *, timeout_s: float = CALL_TIMEOUT_S) -> pb.GetJobResponse:
        """Ask what the planner knows of a job; raises `PlannerCallError`."""
        return self._call("GetJob", lambda stub: stub.GetJob, request, timeout_s)

    def close_job(self, request: pb.CloseJobRequest, *, timeout_s: float = CALL_TIMEOUT_S) -> None:
        """End a job; raises `PlannerCallError`."""
        self._call("CloseJob", lambda stub: stub.CloseJob, request, timeout_s)

    def stream_schedules(self, request: pb.StreamSchedulesRequest) -> ScheduleStream:
        """Open the stream of one rank's schedules; it stays open until it breaks or is cancelled."""
        begun = self._begin("StreamSchedules", lambda stub, shown: stub.StreamSchedules(request, metadata=shown))
        return ScheduleStream(begun.call, begun.connection.endpoint, lambda error: self._failed(begun, error))

    def close(self) -> None:
        """Cancel what is under way and close the channels; calls that follow fail. Does nothing in a forked process."""
        self._connections.close()

    def _call(
        self,
        rpc: str,
        method: Callable[[pb_grpc.PlannerServiceStub], grpc.UnaryUnaryMultiCallable[_Request, _Answer]],
        request: _Request,
        timeout_s: float,
    ) -> _Answer:
        begun = self._begin(rpc, lambda stub, shown: method(stub).future(request, timeout=timeout_s, metadata=shown))
        try:
            return begun.call.result()
        except (grpc.RpcError, grpc.FutureCancelledError) as error:
            raise self._failed(begun, error) from error

    def _begin(
        self, rpc: str, begin: Callable[[pb_grpc.PlannerServiceStub, tuple[tuple[str, str], ...]], _Call]
    ) -> _Begun[_Call]:
        credentials = self._credentials.current()
        with self._connections.current(credentials) as connection:
            if connection is None:
                raise PlannerCallError(
                    rpc=rpc, endpoint=str(self.endpoint), code=grpc.StatusCode.CANCELLED, details="the client is closed"
                )
            call = begin(pb_grpc.PlannerServiceStub(connection.channel), credentials.metadata())
            connection.under_way += 1
        self._connections.watch(connection, call)
        return _Begun(rpc=rpc, connection=connection, credentials=credentials, call=call)

    def _failed(self, begun: _Begun[Any], cause: grpc.RpcError | grpc.FutureCancelledError) -> PlannerCallError:
        """Say what went wrong, and speak to the next planner where it may do better."""
        error = call_error(begun.rpc, begun.connection, self._files, cause)
        if error.denied:
            self._denied = begun.connection.endpoint, begun.credentials
        if error.elsewhere:
            self._connections.leave(begun.connection, str(error))
        return error


class ScheduleStream:
    """An open stream of one rank's schedules.

    Parameters
    ----------
    call
        The call.
    endpoint
        Where its planner listens.
    failed
        Makes the error of this client from gRPC's.
    """

    def __init__(
        self,
        call: _CallIterator[pb.StreamSchedulesResponse],
        endpoint: Endpoint,
        failed: Callable[[grpc.RpcError], PlannerCallError],
    ) -> None:
        self._call = call
        self._failed = failed
        self.endpoint = endpoint

    def __iter__(self) -> Iterator[pb.StreamSchedulesResponse]:
        """Yield the answers as they come; raises `PlannerCallError` when the stream breaks."""
        try:
            yield from self._call
        except grpc.RpcError as error:
            raise self._failed(error) from error

    def cancel(self) -> None:
        """End the stream from this side."""
        self._call.cancel()


def _first_to_answer(heard: SimpleQueue[tuple[int, bool]], planners: int) -> int | None:
    """Return which planner answers, the lowest of those that do while the first has its head start; None: none."""
    answered: set[int] = set()
    until_s = time.monotonic() + HEAD_START_S
    for _ in range(planners):
        try:
            turn, answers = heard.get(timeout=max(0.0, until_s - time.monotonic()) if answered else None)
        except Empty:
            break
        if answers:
            answered.add(turn)
        if 0 in answered:
            break
    return min(answered, default=None)


def _first_connected(connections: Sequence[Connection]) -> int | None:
    """Return the first planner that this process is connected to by now; None: it is to none."""
    ready = [grpc.channel_ready_future(connection.channel) for connection in connections]
    until_s = time.monotonic() + CONNECTED_S
    for future in ready:
        with suppress(grpc.FutureTimeoutError):
            future.result(timeout=max(0.0, until_s - time.monotonic()))
    found = next((turn for turn, future in enumerate(ready) if future.done()), None)
    for future in ready:
        future.cancel()
    return found


def _is_answer(call: grpc.Future[pb.GetJobResponse]) -> bool:
    """Return whether a planner, once connected to, ended the call, and not this side's waiting."""
    given_up = (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)
    return isinstance(call, grpc.Call) and call.code() not in given_up
