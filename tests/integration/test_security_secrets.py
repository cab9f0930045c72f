"""Shows that no secret is in a planner's output, its errors, its metrics, or in what process lists show of it."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest
from access_files import AccessFile, bearer
from certificates import Authority
from dip.planner.v1 import planner_pb2 as pb
from dip.planner.v1 import planner_pb2_grpc as pb_grpc
from integration.harness import patient_process
from redis_cases import needs_redis
from serving import CHANNEL_OPTIONS, register, stream, submit, worker_pids
from waiting import PATIENCE_S, until

from benchmarks.redis_server import RedisServer
from planner_service import settings as names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.planner_process import PlannerProcess

PASSWORD = "red1s-s3cret"
FREE = {name: "127.0.0.1:0" for name in (names.LISTEN, names.HEALTH_LISTEN, names.METRICS_LISTEN)}


class Site:
    """A planner with everything that is secret, at its most talkative, and what was said of it."""

    def __init__(self, directory: Path, redis: RedisServer) -> None:
        self.authority = Authority(directory)
        pair = self.authority.pair()
        self.file = AccessFile(directory / "access.toml")
        self.good = self.file.let_in("good", jobs=["job"])
        self.weak = self.file.let_in("weak", roles=["viewer"], jobs=["else"])
        self.unknown = "unkn0wn-s3cret"
        password = directory / "password"
        password.write_text(PASSWORD)
        self.settings = pair.server_environment() | {
            names.ACCESS_FILE: str(self.file.path),
            names.STORE: f"redis://127.0.0.1:{redis.port}/0",
            names.STORE_PASSWORD_FILE: str(password),
            names.LOG_LEVEL: "DEBUG",
        }
        key_lines = [line for line in pair.key.decode().splitlines() if "-----" not in line]
        self.secrets = [self.good, self.weak, self.unknown, PASSWORD, *key_lines]
        self.said: list[str] = []

    def call(self, address: str, method: str, request: object, *metadata: tuple[str, str]) -> None:
        """Call, and keep what the caller is told if it is refused."""
        with grpc.secure_channel(address, self.authority.trusted(), options=CHANNEL_OPTIONS) as channel:
            call = getattr(pb_grpc.PlannerServiceStub(channel), method)
            try:
                answer = call(request, metadata=metadata, timeout=PATIENCE_S)
                if method == "StreamSchedules":
                    next(answer)
            except grpc.RpcError as error:
                self.said.append(f"{error.code()} {error.details()} {error.trailing_metadata()}")


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        with server.client() as client:
            client.config_set("requirepass", PASSWORD)
        yield server


@needs_redis
def test_secrets_stay_secret(tmp_path: Path, redis: RedisServer) -> None:
    site = Site(tmp_path, redis)
    with patient_process(site.settings) as planner:
        for token in (site.good, site.weak, site.unknown):
            for method, request in (
                ("RegisterJob", register()),
                ("SubmitBatch", submit(0)),
                ("StreamSchedules", stream()),
                ("GetJob", pb.GetJobRequest(job_id="job")),
                ("GetJob", pb.GetJobRequest(job_id=token[:20])),
            ):
                site.call(planner.address, method, request, *bearer(token))
        site.call(planner.address, "ListJobs", pb.ListJobsRequest(), ("authorization", site.unknown))
        site.call(planner.address, "ListJobs", pb.ListJobsRequest(), ("authorization", f"Basic {site.unknown}"))
        site.file.path.write_text(f'[[tokens]]\nname = "typo"\nsha256 = "{site.unknown}"\ntoken = "{site.good}"\n')
        Path(site.settings[names.TLS_KEY_FILE]).write_text("half")
        wait_for(planner, "DIP_ACCESS_FILE=", "DIP_TLS_KEY_FILE=")
        assert any("PERMISSION_DENIED" in said for said in site.said)
        assert any("UNAUTHENTICATED" in said for said in site.said)
        until(lambda: worker_pids(planner.pid))
        processes = [planner.pid, *worker_pids(planner.pid)]
        shown = [Path(f"/proc/{pid}/cmdline").read_text() for pid in processes]
        log = planner.log()
        with urllib.request.urlopen(f"http://{planner.metrics_address}/metrics", timeout=PATIENCE_S) as answer:
            metrics = answer.read().decode()
    assert "dip_" in metrics
    assert "DEBUG" in log
    for secret in site.secrets:
        for place in (log, metrics, *site.said, *shown):
            assert secret not in place


@needs_redis
def test_planner_that_does_not_start_tells_no_secret_either(tmp_path: Path, redis: RedisServer) -> None:
    site = Site(tmp_path, redis)
    password = Path(site.settings[names.STORE_PASSWORD_FILE])
    mixed_up = tmp_path / "mixed-up.toml"
    mixed_up.write_text(f'[[tokens]]\nname = "a"\nsha256 = "{site.good}"\nroles = ["trainer"]\njobs = ["*"]\n')
    other = Authority(tmp_path, "other").pair()
    for wrong in (
        {names.ACCESS_FILE: str(mixed_up)},
        {names.TLS_KEY_FILE: str(other.key_file)},
        {names.STORE: f"redis:/:{PASSWORD}@127.0.0.1"},
        {names.STORE: f"redis://user:{PASSWORD}@127.0.0.1:{redis.port}/0", names.STORE_PASSWORD_FILE: ""},
    ):
        ended = subprocess.run(
            [sys.executable, "-m", "planner_service.cli", "serve"],
            env=os.environ | FREE | site.settings | wrong,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert ended.returncode in (1, 2), ended.stderr
        assert "dip serve: DIP_" in ended.stderr or "DIP_STORE" in ended.stderr
        assert "Traceback" not in ended.stderr
        for secret in (*site.secrets, *other.key.decode().splitlines()[1:-1]):
            assert secret not in ended.stdout + ended.stderr
    assert password.read_text() == PASSWORD


def wait_for(planner: PlannerProcess, *texts: str) -> None:
    """Wait until the planner's log tells that it keeps what it had, of each of the files."""

    def tells_all() -> bool:
        kept = [line for line in planner.log().splitlines() if "stays in force" in line]
        return all(any(text in line for line in kept) for text in texts)

    until(tells_all, told=planner.log)
