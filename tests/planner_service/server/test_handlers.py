"""Shows that an answer which no longer reaches its client is logged as no error, and that a bug is."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import grpc
import grpc.aio
from dip.planner.v1 import planner_pb2 as pb
from dip.planner.v1 import planner_pb2_grpc as pb_grpc
from serving import CHANNEL_OPTIONS, refusal, run
from waiting import PATIENCE_S

from planner_service.server.handlers import add_servicer

if TYPE_CHECKING:
    import pytest

SHORT_S = 0.3


class Failing:
    """Answers every call with one error."""

    draining = False

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __getattr__(self, method: str) -> object:
        async def fail(request: object, context: object) -> None:
            raise self._error

        return fail


async def code_of(error: Exception, *, deadline_s: float = PATIENCE_S) -> grpc.StatusCode:
    """Return what a client gets from a service that fails so."""
    server = grpc.aio.server()
    add_servicer(server, Failing(error))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=CHANNEL_OPTIONS) as channel:
        stub = pb_grpc.PlannerServiceStub(channel)
        refused = await refusal(stub.ListJobs(pb.ListJobsRequest(), timeout=deadline_s))
    await server.stop(grace=0)
    return refused.code()


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What gRPC and the planner warn of; what asyncio does may come from the event loop of a test before."""
    ours = [record for record in caplog.records if record.name.startswith(("grpc", "planner_service"))]
    return [record.getMessage() for record in ours if record.levelno >= logging.WARNING]


def test_answer_to_a_client_that_has_just_left_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        left = grpc.aio.InternalError("Failed grpc_call_start_batch")
        code = await code_of(left, deadline_s=SHORT_S)
        assert code == grpc.StatusCode.DEADLINE_EXCEEDED  # nothing is sent to nobody

    run(scenario())
    assert not told(caplog)


def test_bug_is_an_error(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        assert await code_of(ZeroDivisionError("a bug")) == grpc.StatusCode.UNKNOWN

    run(scenario())
    (bug,) = told(caplog)
    assert "Unexpected [ZeroDivisionError]" in bug
