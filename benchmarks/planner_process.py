"""A real ``dip serve`` of one's own on free ports of this machine: started, watched, ended."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

import grpc
from grpc_health.v1 import health_pb2

from benchmarks import procfs
from planner_service import settings as names

if TYPE_CHECKING:
    from types import TracebackType

CHANNEL_OPTIONS = (("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1))
"""For channels to it: straight there, on a connection of their own."""

_SERVING = re.compile(r"serving listen=(\S+) health=(\S+) metrics=(\S+)")
# A line of the log of that level, or what Python writes of an exception that nobody took.
_TROUBLE = re.compile(r"^\S+ \S+ (ERROR|CRITICAL) |^Traceback \(most recent call last\)|^Fatal Python error")
_FREE = {
    names.LISTEN: "127.0.0.1:0",
    names.HEALTH_LISTEN: "127.0.0.1:0",
    names.METRICS_LISTEN: "127.0.0.1:0",
    names.SEARCH_WORKERS: "1",
}
_PATIENCE_S = 240.0
_POLL_S = 0.01


class PlannerProcess:
    """One planner, killed at the end of the block that it is used in.

    Parameters
    ----------
    settings
        Settings by their names in the environment; free ports and one worker where they do not say otherwise.
    module
        What is run as the ``dip`` command.

    Attributes
    ----------
    address, health_address, metrics_address
        Where it listens, once started; there again if it is started anew.
    """

    def __init__(self, settings: dict[str, str] | None = None, *, module: str = "planner_service.cli") -> None:
        self._settings = _FREE | (settings or {})
        self._module = module
        self._directory = tempfile.TemporaryDirectory(prefix="dip-planner-")
        self._log = Path(self._directory.name) / "planner.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.address = self.health_address = self.metrics_address = ""

    @property
    def pid(self) -> int:
        """The process, once started."""
        return self._started().pid

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._started().poll() is None

    @property
    def exit_code(self) -> int | None:
        """What it ended with; None while it runs, below 0 where a signal ended it."""
        return self._started().poll()

    def start(self) -> Self:
        """Start it, for the first time or after a kill, and wait until it serves.

        Raises
        ------
        RuntimeError
            It ended, or said nothing in time; with its log.
        """
        command = [sys.executable, "-m", self._module, "serve"]
        with self._log.open("ab") as log:
            before = len(self.log())
            self._process = subprocess.Popen(command, env=os.environ | self._settings, stdout=log, stderr=log)
        deadline = time.monotonic() + _PATIENCE_S
        while not (serving := _SERVING.search(self.log(), before)):
            if not self.alive or time.monotonic() > deadline:
                raise RuntimeError(f"the planner does not start:\n{self.log()}")
            time.sleep(_POLL_S)
        self.address, self.health_address, self.metrics_address = serving.groups()
        self._settings |= {  # if it starts again
            names.LISTEN: self.address,
            names.HEALTH_LISTEN: self.health_address,
            names.METRICS_LISTEN: self.metrics_address,
        }
        return self

    def log(self) -> str:
        """Return what it has written so far, in all its starts."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def troubles(self) -> list[str]:
        """Lines of its log that tell of errors."""
        return [line for line in self.log().splitlines() if _TROUBLE.match(line)]

    def is_serving(self) -> bool:
        """Whether its health says SERVING on the address for orchestrators."""
        with grpc.insecure_channel(self.health_address, options=CHANNEL_OPTIONS) as channel:
            check = channel.unary_unary(
                "/grpc.health.v1.Health/Check",
                request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
                response_deserializer=health_pb2.HealthCheckResponse.FromString,
            )
            answer = check(health_pb2.HealthCheckRequest(), timeout=_PATIENCE_S, wait_for_ready=True)
        return answer.status == health_pb2.HealthCheckResponse.SERVING

    def resident_mib(self) -> int:
        """Memory of the planner's own process, which its solvers are no part of."""
        return int(procfs.resident_mib(self.pid))

    def solver_pids(self) -> list[int]:
        """Its solver processes, be they ready or just starting."""
        return procfs.children(self.pid, module="planner_service.pool.worker")

    def send(self, number: signal.Signals) -> None:
        """Send it a signal: SIGSTOP and SIGCONT make it hang and go on."""
        self._started().send_signal(number)

    def kill(self) -> None:
        """End it as a crash does, and wait until it is gone; its solvers end with it."""
        self.send(signal.SIGKILL)
        self._started().wait(_PATIENCE_S)

    def close(self) -> None:
        """Kill it, whatever state it is in, and delete its log."""
        if self._process is not None:
            self.kill()
        self._directory.cleanup()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the planner is not started")
        return self._process
