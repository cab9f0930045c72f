"""Shows that `dip serve` does not start where it would be open to anybody, and starts where somebody said so."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import grpc
from access_files import AccessFile, bearer
from certificates import Authority
from dip.planner.v1 import planner_pb2 as pb
from dip.planner.v1 import planner_pb2_grpc as pb_grpc
from serving import CHANNEL_OPTIONS
from waiting import PATIENCE_S, until

from benchmarks.planner_process import PlannerProcess
from planner_service import settings as names

if TYPE_CHECKING:
    from pathlib import Path

ANYWHERE = "0.0.0.0:0"


def dip_serve(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "planner_service.cli", "serve", "--health-listen", "127.0.0.1:0", *arguments]
    environment = os.environ | {names.METRICS_LISTEN: names.METRICS_OFF}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def test_open_to_anybody_is_refused_in_one_line() -> None:
    ended = dip_serve("--listen", ANYWHERE)
    assert ended.returncode == 1
    assert ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    assert line.startswith("dip serve: DIP_LISTEN=0.0.0.0:0 is beyond this machine, and anybody there may call; set ")
    assert "dip serve --allow-insecure" in line


def test_tokens_in_the_clear_are_refused_in_one_line(tmp_path: Path) -> None:
    file = AccessFile(tmp_path / "access.toml")
    file.let_in("one")
    ended = dip_serve("--listen", ANYWHERE, "--access-file", str(file.path))
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert "tokens would travel in the clear; set DIP_TLS_CERT_FILE and DIP_TLS_KEY_FILE" in line


def test_who_allows_it_gets_one_warning() -> None:
    with PlannerProcess({names.LISTEN: ANYWHERE, names.ALLOW_INSECURE: "true"}) as planner:
        (line,) = [line for line in planner.log().splitlines() if "WARNING" in line and "DIP_LISTEN" in line]
        assert (
            "DIP_ALLOW_INSECURE=true: DIP_LISTEN=0.0.0.0:0 is beyond this machine, and anybody there may call" in line
        )
        port = planner.address.rpartition(":")[2]
        with grpc.insecure_channel(f"127.0.0.1:{port}", options=CHANNEL_OPTIONS) as channel:
            pb_grpc.PlannerServiceStub(channel).ListJobs(pb.ListJobsRequest(), timeout=PATIENCE_S)


def test_a_misspelt_setting_is_warned_about_and_what_kubernetes_sets_is_not() -> None:
    with PlannerProcess({"DIP_ACESS_FILE": "/nowhere", "DIP_PLANNER_SERVICE_PORT": "50061"}) as planner:
        (line,) = [line for line in planner.log().splitlines() if "WARNING" in line and "DIP_" in line]
        assert line.endswith("DIP_ACESS_FILE: is set, but there is no such setting; is DIP_ACCESS_FILE meant?")


def test_tls_and_tokens_together_may_be_anywhere_and_strangers_leave_no_trace(tmp_path: Path) -> None:
    authority, file = Authority(tmp_path), AccessFile(tmp_path / "access.toml")
    token = file.let_in("one")
    settings = authority.pair().server_environment() | {names.LISTEN: ANYWHERE, names.ACCESS_FILE: str(file.path)}
    with PlannerProcess(settings) as planner:
        assert planner.troubles() == []
        address = f"127.0.0.1:{planner.address.rpartition(':')[2]}"
        with grpc.secure_channel(address, authority.trusted(), options=CHANNEL_OPTIONS) as channel:
            stub = pb_grpc.PlannerServiceStub(channel)
            stub.ListJobs(pb.ListJobsRequest(), metadata=bearer(token), timeout=PATIENCE_S)
        until(lambda: "ready to plan" in planner.log(), told=planner.log)  # of itself it says nothing more then
        lines = len(planner.log().splitlines())
        for _ in range(3):
            with socket.create_connection(planner.address.rsplit(":", 1), timeout=PATIENCE_S) as stranger:
                stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
                while stranger.recv(1_000):
                    pass
        assert len(planner.log().splitlines()) == lines  # who cannot connect cannot fill the log
