"""Shows that a planner is ready from its first solver process until it drains, and alive and reachable all along."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import grpc.aio
import scripted_engine
import scripted_planner
from dip.planner.v1 import planner_pb2 as pb
from dip.planner.v1 import planner_pb2_grpc as pb_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from metric_samples import value
from serving import CHANNEL_OPTIONS, client, planner, refusal, register, run, worker_pids
from waiting import PATIENCE_S, until

from benchmarks.planner_process import PlannerProcess
from planner_service import settings as names

if TYPE_CHECKING:
    import pytest

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
PROCESS = health_pb2.HealthCheckRequest()
SERVICE = health_pb2.HealthCheckRequest(service="dip.planner.v1.PlannerService")


def test_first_solver_makes_it_ready_and_one_that_is_lost_leaves_it_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = start_gate(tmp_path)
    monkeypatch.setenv(scripted_engine.START_GATE, str(gate))

    async def scenario() -> None:
        were_ready = value("dip_ready_workers")
        async with (
            planner() as server,
            client(server) as stub,
            grpc.aio.insecure_channel(server.health_address, options=CHANNEL_OPTIONS) as channel,
        ):
            health = health_pb2_grpc.HealthStub(channel)
            service = health.Watch(SERVICE)
            assert (await service.read()).status == NOT_SERVING
            assert (await health.Check(PROCESS)).status == SERVING
            assert not (await stub.ListJobs(pb.ListJobsRequest())).jobs
            await asyncio.to_thread(gate.write_text, "go")
            assert (await service.read()).status == SERVING
            (solver,) = worker_pids()
            os.kill(solver, signal.SIGKILL)
            while value("dip_ready_workers") != were_ready:  # the next one waits at the gate
                await asyncio.sleep(0.001)
            assert (await health.Check(SERVICE)).status == SERVING
            assert (await health.Check(PROCESS)).status == SERVING

    run(scenario())


def test_solvers_that_never_start_leave_it_unready_and_reachable(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with (
            planner("no.such.engine") as server,
            client(server) as stub,
            grpc.aio.insecure_channel(server.health_address, options=CHANNEL_OPTIONS) as channel,
        ):
            refused = await refusal(stub.RegisterJob(register()))
            assert "workers do not start" in str(refused.details())
            health = health_pb2_grpc.HealthStub(channel)
            assert (await health.Check(SERVICE)).status == NOT_SERVING
            assert (await health.Check(PROCESS)).status == SERVING
            assert not (await stub.ListJobs(pb.ListJobsRequest())).jobs

    run(scenario())
    assert "worker does not start, attempt 3: the solver's process ended with exit code 1" in caplog.messages


def test_process_is_not_ready_then_ready_then_drains(tmp_path: Path) -> None:
    gate = start_gate(tmp_path)
    settings = {
        "PYTHONPATH": str(Path(scripted_planner.__file__).parent),
        scripted_engine.START_GATE: str(gate),
        names.DRAIN_MS: str(int(PATIENCE_S * 1000)),  # a call that is open is waited for: the watch below
    }
    with (
        PlannerProcess(settings, module=scripted_planner.__name__) as process,
        grpc.insecure_channel(process.address, options=CHANNEL_OPTIONS) as channel,
    ):
        service = health_pb2_grpc.HealthStub(channel).Watch(SERVICE, timeout=PATIENCE_S)
        assert next(service).status == NOT_SERVING
        assert not pb_grpc.PlannerServiceStub(channel).ListJobs(pb.ListJobsRequest(), timeout=PATIENCE_S).jobs
        gate.write_text("go")
        assert next(service).status == SERVING
        assert " ready to plan " in process.log()
        os.kill(process.pid, signal.SIGTERM)
        assert next(service).status == NOT_SERVING
        service.cancel()
        until(lambda: not process.alive, told=process.log)
        assert process.exit_code == 0


def start_gate(folder: Path) -> Path:
    """Return the FIFO at which starting solver processes wait, each until somebody writes to it."""
    gate = folder / "start"
    os.mkfifo(gate)
    return gate
