"""Shows a planner's log as a process writes it: every line of it JSON if asked, each about a batch with its fields."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import grpc
import pytest
import scripted_planner
from dip.planner.v1 import planner_pb2 as pb
from dip.planner.v1 import planner_pb2_grpc as pb_grpc
from scripted_engine import CANNOT_FIT, RAISE
from serving import register, stream, submit
from waiting import PATIENCE_S

from benchmarks.planner_process import CHANNEL_OPTIONS, PlannerProcess

PATH = os.pathsep.join([str(Path(scripted_planner.__file__).parent), *sys.path])
SETTINGS = {
    "PYTHONPATH": PATH,
    "DIP_HEALTH_LISTEN": "127.0.0.1:0",
    "DIP_METRICS_LISTEN": "127.0.0.1:0",
    "DIP_SEARCH_WORKERS": "1",
    "DIP_SOLVE_GRACE_MS": "600000",  # no search is late on a busy machine
    "DIP_LEASE_MS": "600000",
}
ABOUT = {"job": "job", "attempt": 1, "replica": 0}


def plan(stub: Any, iteration: int, script: int) -> pb.StreamSchedulesResponse:
    """Have a batch planned, and return what a rank is told of it."""
    stub.SubmitBatch(submit(iteration, script), timeout=PATIENCE_S)
    call = stub.StreamSchedules(stream(iteration), timeout=PATIENCE_S)
    response: pb.StreamSchedulesResponse = next(call)
    call.cancel()
    return response


def test_text_says_where_it_serves_as_ever() -> None:
    """Whoever starts planners reads their addresses there."""
    with PlannerProcess({"PYTHONPATH": PATH}, module=scripted_planner.__name__) as planner:
        assert f" INFO planner_service.server.lifecycle: serving listen={planner.address} health=" in planner.log()


def test_the_story_of_batches_in_json(tmp_path: Path) -> None:
    address = f"unix://{tmp_path}/planner.sock"
    environment = os.environ | SETTINGS | {"DIP_LISTEN": address, "DIP_LOG_FORMAT": "json"}
    command = [sys.executable, "-m", scripted_planner.__name__]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        with grpc.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
            stub = pb_grpc.PlannerServiceStub(channel)
            stub.RegisterJob(register(), timeout=PATIENCE_S, wait_for_ready=True)
            assert plan(stub, 0, 400).schedule.makespan_us
            assert plan(stub, 1, CANNOT_FIT).unplanned_reason
            assert plan(stub, 2, RAISE).schedule.fallback
            began_s = time.monotonic()
            for _ in range(50):
                with pytest.raises(grpc.RpcError):
                    stub.SubmitBatch(submit(0, job_id="other"), timeout=PATIENCE_S)
                with pytest.raises(grpc.RpcError):
                    stub.GetJob(pb.GetJobRequest(job_id="other"), timeout=PATIENCE_S)
            took_s = time.monotonic() - began_s
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.communicate()
    records = [json.loads(line) for line in log.split("\n") if line]

    def of(**fields: object) -> list[dict[str, Any]]:
        return [record for record in records if fields.items() <= record.items()]

    assert of(message="serving", listen=address, workers=1)
    assert of(message="registered", job="job", attempt=1, level="INFO")
    (planned,) = of(**ABOUT, iteration=0, message="planned", level="INFO")
    assert planned["found_by"] == "scripted"
    assert planned["makespan_us"] > 0
    (unplanned,) = of(**ABOUT, iteration=1, message="unplanned", level="WARNING")
    assert "rank 1" in unplanned["reason"]
    (lost,) = of(**ABOUT, iteration=2, message="a solve lost its worker", level="WARNING")
    assert "the solver's process ended" in lost["reason"]
    wrote = "".join(record["output"] for record in of(**ABOUT, iteration=2, message="a child process wrote"))
    assert wrote.endswith("LookupError: a bug\n")
    (fixed,) = of(**ABOUT, iteration=2, message="planned")
    assert fixed["found_by"] == "the fixed schedule"
    refused = [record for record in of(method="SubmitBatch", code="NOT_FOUND") if "caller" in record]
    assert 5 <= len(refused) <= 5 * (2 + took_s // 10), "so many in ten seconds"
    assert (refused[0]["job"], refused[0]["iteration"]) == ("other", 0)
    assert not of(method="GetJob"), "whoever reads what may not be there is told so, and nobody else is"
    assert refused[0]["peer"].startswith("unix:")
    assert of(message="stopped")


def test_why_it_does_not_start_is_json_too() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        command = [str(Path(sys.executable).with_name("dip")), "serve", "--listen", address, "--log-format", "json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    (line,) = done.stderr.splitlines()
    record = json.loads(line)
    assert done.returncode == 1
    assert record["level"] == "CRITICAL"
    assert address in record["message"]


UNCAUGHT = """
import logging, sys, threading, warnings
from planner_service.logs import log_to_stderr
log_to_stderr(level="INFO", format=sys.argv[1])
class Unraisable:
    def __del__(self):
        raise LookupError("unraisable")
made = Unraisable()
del made
thread = threading.Thread(target=lambda: [][0], name="busy")
thread.start()
thread.join()
warnings.warn("look out")
logging.getLogger("redis").info("of a library")
raise LookupError("uncaught\\nforged")
"""


@pytest.mark.parametrize("form", ["json", "text"])
def test_what_nobody_took_is_in_the_log(form: str) -> None:
    done = subprocess.run([sys.executable, "-c", UNCAUGHT, form], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 1
    if form == "text":
        starts = [line for line in done.stderr.splitlines() if not line.startswith("    ")]
        assert [line.split(" ")[2] for line in starts] == ["ERROR", "ERROR", "WARNING", "INFO", "CRITICAL"]
        return
    records = [json.loads(line) for line in done.stderr.splitlines()]
    assert [record["level"] for record in records] == ["ERROR", "ERROR", "WARNING", "INFO", "CRITICAL"]
    assert "LookupError: unraisable" in records[0]["exception"]
    assert "IndexError" in records[1]["exception"]
    assert "busy" in records[1]["message"]
    assert "look out" in records[2]["message"]
    assert records[3]["logger"] == "redis"
    assert records[4]["exception"].endswith("LookupError: uncaught\nforged")
