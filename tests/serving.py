"""A planner in the test's own event loop, its worker processes real, and the requests that tests send it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import cases
import grpc
import grpc.aio
import pytest
import scripted_engine
from dip.planner.v1 import planner_pb2 as pb
from dip.planner.v1 import planner_pb2_grpc as pb_grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from waiting import PATIENCE_S

from planner_service.metrics import endpoint
from planner_service.pool import pool, process
from planner_service.server import channel_options, claimed, lifecycle
from planner_service.server.client_calls import ClientCalls
from planner_service.server.lifecycle import PlannerServer
from planner_service.settings import Settings
from planner_service.store import MemoryStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterator

    from planner_service.store import PlanStore

RANKS = 2
CHANNEL_OPTIONS = [("grpc.enable_http_proxy", 0)]
FREE = {"listen": "127.0.0.1:0", "health_listen": "127.0.0.1:0", "metrics_listen": "off"}
LONG_MS = 600_000
"""A search, and a lease, that outlives any test."""

_PATIENCE_MS = int(PATIENCE_S * 1000)

# On a busy machine a solver may be slow to answer, and a client to hear: where no test says so that is over no limit of
# the planner. No lease ends because this process stood still.
_PATIENT = {"solve_grace_ms": LONG_MS, "drain_ms": 120_000, "lease_ms": LONG_MS, "max_budget_ms": LONG_MS}


class ClosingStore(MemoryStore):
    """Knows whether it was let go of."""

    closed = False

    async def close(self) -> None:
        self.closed = True
        await super().close()


def run(scenario: Coroutine[Any, Any, None], *, limit_s: float = PATIENCE_S) -> None:
    """Run a test's scenario; one that hangs fails."""
    asyncio.run(asyncio.wait_for(scenario, limit_s))


@contextlib.asynccontextmanager
async def planner(
    engine: str = scripted_engine.__name__,
    *,
    store: PlanStore | None = None,
    greeting_ms: int = _PATIENCE_MS,
    **settings: Any,
) -> AsyncIterator[PlannerServer]:
    """Serve on free ports until the block ends; a solve that hangs is ended where a test says after how long."""
    arguments = FREE | _PATIENT | {"search_workers": 1} | settings
    server = PlannerServer(Settings(**arguments), engine=engine, store=store)
    with _patient(server, greeting_ms), patch.dict(os.environ, {scripted_engine.KEEPS_PACE: "yes"}):
        await server.start()
        try:
            yield server
        finally:
            await server.drain()


@contextlib.contextmanager
def _patient(server: PlannerServer, greeting_ms: int) -> Iterator[None]:
    """Have no time limit strike that is no setting: this process, or what it waits for, may stand still for a while."""
    with contextlib.ExitStack() as stack:
        # One that gave way from the first would not come up beside somebody who leaves nothing over.
        stack.enter_context(patch.object(server._pool, "_may_hurry", return_value=True))
        stack.enter_context(patch.object(process, "_EXIT_LIMIT_S", PATIENCE_S))
        for module in (pool, claimed):
            stack.enter_context(patch.object(module, "FALLBACK_LIMIT_S", PATIENCE_S))
        stack.enter_context(patch.object(endpoint, "LONGEST_S", PATIENCE_S))
        stack.enter_context(patch.object(endpoint._Handler, "timeout", PATIENCE_S))
        stack.enter_context(patch.object(channel_options, "GREETING_MS", greeting_ms))
        stack.enter_context(patch.object(lifecycle, "ClientCalls", partial(ClientCalls, request_s=PATIENCE_S)))
        yield


@contextlib.asynccontextmanager
async def client(server: PlannerServer, *options: tuple[str, int]) -> AsyncIterator[pb_grpc.PlannerServiceAsyncStub]:
    """Connect to a planner."""
    async with grpc.aio.insecure_channel(server.address, options=[*CHANNEL_OPTIONS, *options]) as channel:
        yield pb_grpc.PlannerServiceStub(channel)


@contextlib.asynccontextmanager
async def served(
    engine: str = scripted_engine.__name__, **settings: Any
) -> AsyncIterator[pb_grpc.PlannerServiceAsyncStub]:
    """Serve, and connect to it."""
    async with planner(engine, **settings) as server, client(server) as stub:
        yield stub


def spec(*, ranks: int = RANKS, replicas: int = 1, budget_ms: int = 300, layers: int = 4) -> pb.JobSpec:
    """A small job of vision into language."""
    modules = [cases.module("vision", layers), cases.module("language", 6, inputs=["vision"])]
    made = cases.job(modules, ranks=ranks)
    made.cluster.replicas = replicas
    made.options.budget_ms = budget_ms
    return made


def batch(script: int = 400, *, vision: int = 96) -> pb.Batch:
    """A small batch; `script` is the language module's first instance, see `scripted_engine`."""
    return cases.batch([[{"vision": [vision], "language": [script]}], [{"language": [200]}]])


def register(job_id: str = "job", attempt: int = 1, **how: Any) -> pb.RegisterJobRequest:
    return pb.RegisterJobRequest(job_id=job_id, attempt=attempt, spec=spec(**how))


def submit(
    iteration: int, script: int = 400, *, job_id: str = "job", attempt: int = 1, replica: int = 0, vision: int = 96
) -> pb.SubmitBatchRequest:
    return pb.SubmitBatchRequest(
        job_id=job_id, attempt=attempt, replica=replica, iteration=iteration, batch=batch(script, vision=vision)
    )


def stream(
    first_iteration: int = 0, *, rank: int = 0, job_id: str = "job", attempt: int = 1, replica: int = 0
) -> pb.StreamSchedulesRequest:
    return pb.StreamSchedulesRequest(
        job_id=job_id, attempt=attempt, replica=replica, rank=rank, first_iteration=first_iteration
    )


def report(
    iteration: int, *, rank: int = 0, job_id: str = "job", attempt: int = 1, stalled_us: int = 0
) -> pb.ReportExecutionRequest:
    return pb.ReportExecutionRequest(
        job_id=job_id,
        attempt=attempt,
        rank=rank,
        iteration=iteration,
        plan_digest=bytes(32),
        stalled_us=stalled_us,
        fallback=True,
    )


async def take(call: Any, count: int) -> list[pb.StreamSchedulesResponse]:
    """Read so many responses of a stream."""
    return [await call.read() for _ in range(count)]


async def refusal(call: Any) -> grpc.aio.AioRpcError:
    """Await a call that must fail."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


async def is_refused(call: Any, code: grpc.StatusCode) -> None:
    """Await a call that must fail with this code."""
    error = await refusal(call)
    assert error.code() == code, error.details()


def retry_delay(error: grpc.aio.AioRpcError) -> float:
    """Seconds after which a RESOURCE_EXHAUSTED asks to come back."""
    (detail,) = rpc_status.from_call(error).details
    info = error_details_pb2.RetryInfo()
    assert detail.Unpack(info)
    return info.retry_delay.ToTimedelta().total_seconds()


def worker_pids(pid: int | None = None) -> list[int]:
    """Worker processes of a pool in a process, in this one by default; zombies and other children are left out."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                is_worker = b"planner_service.pool.worker" in (entry / "cmdline").read_bytes()
                if int(parent) == (pid or os.getpid()) and state != "Z" and is_worker:
                    found.append(int(entry.name))
    return found
