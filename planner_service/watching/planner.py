"""Asks the planners of one store, one after the other while they are away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import grpc
from dip.connecting import Credentials, CredentialSource
from dip.planner.v1 import planner_pb2 as pb
from dip.planner.v1 import planner_pb2_grpc as pb_grpc

from planner_service.watching.failures import AwayError, NoSuchJobError, failure, unreachable
from planner_service.watching.words import and_more

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from dip.connecting import ClientFiles, Endpoint, Endpoints

    _Method = grpc.UnaryUnaryMultiCallable

Q = TypeVar("Q")
A = TypeVar("A")

_TIMEOUT_S: Final = 5.0
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", 64 * 2**20),  # a job's costs and partition have no bound of their own
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)
_SHOWN_JOBS: Final = 10


class PlannerClient:
    """A reader of jobs; a context manager.

    Files are read again for every question, so that a long watch goes on over certificates and tokens that change.

    Parameters
    ----------
    endpoints
        Planners that share a store. One that answered is asked on; the next where it is away.
    files
        What to connect with.
    timeout_s
        How long one planner may take to answer.

    Raises
    ------
    ClientFilesError
        A file cannot be used, or the token would travel in the clear.
    """

    def __init__(self, endpoints: Endpoints, files: ClientFiles, *, timeout_s: float = _TIMEOUT_S) -> None:
        files.check(endpoints)
        self._endpoints = list(endpoints)
        self._files = files
        self._timeout_s = timeout_s
        self._source = CredentialSource(files)
        self._channels: dict[Endpoint, tuple[Credentials, grpc.Channel]] = {}

    def __enter__(self) -> PlannerClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for _, channel in self._channels.values():
            channel.close()

    @property
    def endpoint(self) -> str:
        """Who answered last, or is asked first."""
        return str(self._endpoints[0])

    def jobs(self) -> list[pb.JobStatus]:
        """Ask for the jobs that the caller may see.

        Raises
        ------
        WatchError
            There is no answer; its subclasses say why.
        """
        return list(self._ask(lambda stub: stub.ListJobs, pb.ListJobsRequest()).jobs)

    def job(self, request: pb.GetJobRequest) -> pb.GetJobResponse:
        """Ask for one job.

        Raises
        ------
        WatchError
            There is no answer; where there is no such job it names those that there are.
        """
        try:
            return self._ask(lambda stub: stub.GetJob, request)
        except NoSuchJobError:
            known = [status.job_id for status in self.jobs()]
            there_are = f"there are {and_more(known, _SHOWN_JOBS)}" if known else "it knows none"
            raise NoSuchJobError(
                f"the planner at {self.endpoint} knows no job {request.job_id!r}; {there_are}"
            ) from None

    def _ask(self, method: Callable[[pb_grpc.PlannerServiceStub], _Method[Q, A]], request: Q) -> A:
        away: list[AwayError] = []
        for endpoint in list(self._endpoints):
            credentials = self._source.current()
            call = method(pb_grpc.PlannerServiceStub(self._channel(endpoint, credentials)))
            try:
                return call(request, timeout=self._timeout_s, metadata=credentials.metadata())
            except grpc.RpcError as error:
                if not isinstance(error, grpc.Call):
                    raise
                found = failure(error, endpoint, self._files, credentials.tls)
                if not isinstance(found, AwayError):
                    raise found from None
                away.append(found)
                self._endpoints.append(self._endpoints.pop(0))
        raise unreachable(away)

    def _channel(self, endpoint: Endpoint, credentials: Credentials) -> grpc.Channel:
        made_with, channel = self._channels.get(endpoint, (None, None))
        if channel is not None and made_with is not None and made_with.tls == credentials.tls:
            return channel
        if channel is not None:
            channel.close()
        channel = credentials.channel(endpoint, _OPTIONS)
        self._channels[endpoint] = credentials, channel
        return channel
