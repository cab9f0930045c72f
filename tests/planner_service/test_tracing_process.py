"""Shows that a planner sends its spans where the environment says, and that nobody waits for who takes them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest
import scripted_planner
from collector import Collector, attributes_of
from dip.planner.v1 import planner_pb2_grpc as pb_grpc
from serving import RANKS, register, stream, submit
from waiting import PATIENCE_S, until

from benchmarks.planner_process import CHANNEL_OPTIONS, PlannerProcess
from planner_service.tracing import quiet

if TYPE_CHECKING:
    from collections.abc import Iterator

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
PATIENT = {"DIP_SOLVE_GRACE_MS": "600000", "DIP_LEASE_MS": "600000"}
# What would make a planner that waited for an export wait longer than any test.
NEVER = {"OTEL_EXPORTER_OTLP_TIMEOUT": "3600", "OTEL_BSP_SCHEDULE_DELAY": "3600000"}


WAITED_FOR = {"OTEL_EXPORTER_OTLP_TIMEOUT": "3600", scripted_planner.FAREWELL: "yes"}
"""What makes one wait that may not lose a span because this machine is busy."""


@contextlib.contextmanager
def planner(**environment: str) -> Iterator[PlannerProcess]:
    """Serve as scripted, in a process."""
    path = os.pathsep.join([str(Path(scripted_planner.__file__).parent), *sys.path])
    with PlannerProcess(PATIENT | {"PYTHONPATH": path} | environment, module=scripted_planner.__name__) as process:
        yield process


def plan(process: PlannerProcess, *, iterations: int = 1) -> None:
    """Have iterations planned, and each of them streamed to every rank."""
    with grpc.insecure_channel(process.address, options=CHANNEL_OPTIONS) as channel:
        stub = pb_grpc.PlannerServiceStub(channel)
        stub.RegisterJob(register(), timeout=PATIENCE_S)
        for iteration in range(iterations):
            stub.SubmitBatch(submit(iteration), timeout=PATIENCE_S)
        for rank in range(RANKS):
            call = stub.StreamSchedules(stream(rank=rank), timeout=PATIENCE_S)
            for _ in range(iterations):
                assert next(call).schedule.makespan_us > 0
            call.cancel()


def stop(process: PlannerProcess) -> None:
    """End it as orchestrators do, and wait until it has ended by itself."""
    process.send(signal.SIGTERM)
    until(lambda: not process.alive, told=process.log)
    assert process.exit_code == 0


def test_spans_reach_a_collector_and_the_last_of_them_when_the_planner_stops() -> None:
    with Collector() as collector:
        with planner(**{ENDPOINT: collector.endpoint, "OTEL_BSP_SCHEDULE_DELAY": "3600000", **WAITED_FOR}) as process:
            plan(process, iterations=2)  # what is sent second tells that the first is through
            assert not collector.spans(), "spans are sent in groups"
            stop(process)
            assert process.troubles() == []
        names = ("submit", "plan", "deliver")
        collector.wait(lambda: all(collector.spans(name, job="job", iteration=0) for name in names))
        assert len({collector.spans(name, job="job", iteration=0)[0].trace_id for name in names}) == 1
        solve = collector.spans("solve")[0]
        assert attributes_of(solve)["dip.found_by"] == "scripted"
        assert collector.resources[0]["service.name"] == "dip-planner"


def test_what_the_environment_says_of_the_service_stands() -> None:
    with Collector() as collector:
        told = {"OTEL_SERVICE_NAME": "ours", "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=lab"}
        with planner(**{ENDPOINT: collector.endpoint, **told, **WAITED_FOR}) as process:
            plan(process)
            stop(process)
        (resource, *_) = collector.resources
        assert resource["service.name"] == "ours"
        assert resource["deployment.environment.name"] == "lab"


def test_a_collector_that_hangs_delays_neither_plans_nor_the_end() -> None:
    with Collector(hangs=True) as collector:
        hanging = NEVER | {ENDPOINT: collector.endpoint, "OTEL_BSP_SCHEDULE_DELAY": "1"}
        with planner(**hanging) as process:
            plan(process)
            assert collector.asked.wait(PATIENCE_S)
            plan(process, iterations=3)
            stop(process)
            assert " stopped " in process.log()
            assert process.troubles() == []


def test_a_collector_that_is_away_costs_a_line_and_no_more() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        away = {ENDPOINT: f"http://127.0.0.1:{taken.getsockname()[1]}", "OTEL_BSP_SCHEDULE_DELAY": "1"}
        began_s = time.monotonic()
        with planner(**away) as process:
            plan(process, iterations=8)
            stop(process)
            periods = 1 + (time.monotonic() - began_s) // quiet.PERIOD_S
            said = [line for line in process.log().splitlines() if "opentelemetry" in line or "urllib3" in line]
            assert len(said) <= 6 * periods, process.log()
            assert " stopped " in process.log()


MISSING = """
import sys
sys.modules["opentelemetry"] = None
from scripted_planner import serve_patiently
sys.exit(serve_patiently())
"""


def test_a_planner_without_the_packages_warns_and_works(tmp_path: Path) -> None:
    (tmp_path / "planner_without_packages.py").write_text(MISSING)
    path = os.pathsep.join([str(tmp_path), str(Path(scripted_planner.__file__).parent), *sys.path])
    settings = PATIENT | {"PYTHONPATH": path, ENDPOINT: "http://127.0.0.1:4318"}
    with PlannerProcess(settings, module="planner_without_packages") as process:
        plan(process)
        stop(process)
        (line,) = [line for line in process.log().splitlines() if "WARNING" in line and "traced" in line]
        assert "pip install 'dip-planner[tracing]'" in line


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {ENDPOINT: "http://127.0.0.1:4318", "OTEL_SDK_DISABLED": "true"},
        {ENDPOINT: "http://127.0.0.1:4318", "OTEL_TRACES_EXPORTER": "none"},
    ],
)
def test_nothing_is_imported_where_nobody_asks(environment: dict[str, str]) -> None:
    code = (
        "import sys; import planner_service.server.main; from planner_service import tracing; tracing.start(); "
        "assert tracing.tracer() is tracing.OFF; sys.exit('opentelemetry' in sys.modules)"
    )
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    done = subprocess.run([sys.executable, "-c", code], env=clean | environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
