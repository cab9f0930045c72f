"""What a deployment's files ask for, on this machine: its secrets, its Redis, its planner, each as the files say.

Addresses become free ones of this machine and paths those of a test's directory; every other value stays as it is.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
from deploy.rendering import DEPLOY
from deploy.running import FILES, UNIX
from grpc_health.v1 import health_pb2, health_pb2_grpc
from integration import patient_dip
from waiting import PATIENCE_S

from benchmarks.held_port import HeldPort
from benchmarks.redis_server import RedisServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_POLL_S = 0.05
_ADDRESSES = ("DIP_LISTEN", "DIP_HEALTH_LISTEN", "DIP_METRICS_LISTEN")


class Site:
    """One deployment on this machine.

    Parameters
    ----------
    directory
        For all that it keeps; of its own.
    made_as
        What `make_secrets.sh` calls the file that is at a path in a container.
    """

    def __init__(self, directory: Path, made_as: Callable[[str], str]) -> None:
        self._directory = directory
        self._made_as = made_as
        self._ports: dict[str, int] = {}
        self._held: list[HeldPort] = []
        self.secrets = directory / "secrets"
        (directory / "run").mkdir()
        subprocess.run(["sh", str(DEPLOY / "make_secrets.sh"), str(self.secrets)], check=True, capture_output=True)

    def settings(self, given: dict[str, str]) -> dict[str, str]:
        """Return settings with the addresses and paths of this machine."""
        return {name: self._here(name, value) for name, value in given.items()}

    def endpoint(self, target: str) -> str:
        """Return where the planner listens that an agent's endpoint names."""
        if target.startswith(UNIX):
            return self._unix(target)
        return f"localhost:{self.free_port(target.rpartition(':')[2])}"

    def redis(self, configuration: str) -> RedisServer:
        """Return the Redis of a configuration, not yet started."""
        lines = [line.split(maxsplit=1) for line in configuration.splitlines() if line and not line.startswith("#")]
        options = {name: value.strip('"') for name, value in lines if name not in ("port", "bind", "dir", "aclfile")}
        directory = self._directory / "redis"
        directory.mkdir()
        return RedisServer(directory, options=options | {"aclfile": str(self.secrets / "redis" / "users.acl")})

    @contextmanager
    def planner(self, settings: dict[str, str]) -> Iterator[None]:
        """Run ``dip serve`` with these settings and no others, until it is ready and the block ends."""
        log = self._directory / "planner.log"
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DIP_")}
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", patient_dip.MODULE, "serve"],
                env=environment | patient_dip.FOUND | settings,
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
            )
        try:
            self._wait(process, settings["DIP_HEALTH_LISTEN"], log)
            yield
            process.terminate()
            assert process.wait(PATIENCE_S) == 0, log.read_text()
        finally:
            process.kill()
            process.wait(PATIENCE_S)

    def _wait(self, process: subprocess.Popen[bytes], address: str, log: Path) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not is_serving(address):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(_POLL_S)

    def _here(self, name: str, value: str) -> str:
        if name in FILES:
            return str(self.secrets / self._made_as(value))
        if name in _ADDRESSES:
            return (
                self._unix(value) if value.startswith(UNIX) else f"127.0.0.1:{self.free_port(value.rpartition(':')[2])}"
            )
        if name == "DIP_STORE":
            return re.sub("@[^/]+", f"@127.0.0.1:{self._ports.get('redis', 0)}", value)
        return value

    def use_redis(self, server: RedisServer) -> None:
        """Let settings that name a Redis name this one."""
        self._ports["redis"] = server.port

    def _unix(self, target: str) -> str:
        return f"{UNIX}{self._directory}/run/{Path(target).name}"

    def free_port(self, name: str) -> int:
        """Return the free port that stands for one of the files, by its name: the same whenever asked."""
        if name not in self._ports:
            self._held.append(HeldPort())
            self._ports[name] = self._held[-1].number
        return self._ports[name]


def is_serving(address: str, service: str = "dip.planner.v1.PlannerService") -> bool:
    """Ask as a probe does: in the clear, on the port for health."""
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(
                health_pb2.HealthCheckRequest(service=service), timeout=PATIENCE_S
            )
        except grpc.RpcError:
            return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)
