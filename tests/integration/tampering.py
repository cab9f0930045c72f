"""A man in the middle: a planner's service that hands on another's, and changes what a test tells it to."""

from __future__ import annotations

from concurrent import futures
from typing import TYPE_CHECKING, Self

import grpc
from dip.planner.v1 import planner_pb2 as pb
from dip.planner.v1 import planner_pb2_grpc as pb_grpc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# ruff: noqa: N802 - the service names its methods.


class TamperingProxy(pb_grpc.PlannerServiceServicer):
    """Between one rank and its planner.

    Parameters
    ----------
    upstream, endpoint
        Where the planner listens, and where this does.
    changes
        By iteration: what is done to the answer that the planner streams for it.
    """

    def __init__(
        self, upstream: str, endpoint: str, changes: dict[int, Callable[[pb.StreamSchedulesResponse], object]]
    ) -> None:
        self.endpoint = endpoint
        self._changes = changes
        self._channel = grpc.insecure_channel(upstream, options=[("grpc.enable_http_proxy", 0)])
        self._planner = pb_grpc.PlannerServiceStub(self._channel)
        self._server = grpc.server(futures.ThreadPoolExecutor(8))

    def __enter__(self) -> Self:
        pb_grpc.add_PlannerServiceServicer_to_server(self, self._server)
        self._server.add_insecure_port(self.endpoint)
        self._server.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._channel.close()
        self._server.stop(grace=None).wait()

    def RegisterJob(self, request: pb.RegisterJobRequest, context: grpc.ServicerContext) -> pb.RegisterJobResponse:
        return self._planner.RegisterJob(request)

    def SubmitBatch(self, request: pb.SubmitBatchRequest, context: grpc.ServicerContext) -> pb.SubmitBatchResponse:
        return self._planner.SubmitBatch(request)

    def ReportExecution(
        self, request: pb.ReportExecutionRequest, context: grpc.ServicerContext
    ) -> pb.ReportExecutionResponse:
        return self._planner.ReportExecution(request)

    def StreamSchedules(
        self, request: pb.StreamSchedulesRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.StreamSchedulesResponse]:
        upstream = self._planner.StreamSchedules(request)
        context.add_callback(upstream.cancel)
        try:
            for answer in upstream:
                if (change := self._changes.get(answer.iteration)) is not None:
                    change(answer)
                yield answer
        except grpc.RpcError:
            context.abort(upstream.code(), upstream.details() or "")
