"""The processes of a load benchmark: servers and trainers, started and ended together, and what they use."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import IO, TYPE_CHECKING

from benchmarks import procfs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

_PATIENCE_S = 240.0


class ProcessEndedError(RuntimeError):
    """A process of the benchmark ended before its work was done; what it said is on standard error."""


class BenchmarkProcess:
    """A module of the benchmarks in a process of its own, that talks in lines; ended with the block.

    Parameters
    ----------
    module
        Its name.
    arguments
        Its command line.
    environment
        What to add to this process's environment.
    """

    def __init__(self, module: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._module = module
        self._process: subprocess.Popen[str] = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        self.pid = self._process.pid

    def say(self, line: str) -> None:
        """Write it a line."""
        print(line, file=_pipe(self._process.stdin), flush=True)

    def hear(self) -> str:
        """Wait for a line of it.

        Raises
        ------
        ProcessEndedError
        """
        line = _pipe(self._process.stdout).readline()
        if not line:
            raise ProcessEndedError(f"{self._module} ended with exit code {self._process.wait()}")
        return line.strip()

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def terminate(self) -> str:
        """Ask it to end, and return what it says until then."""
        self.send(signal.SIGTERM)
        said, _ = self._process.communicate(timeout=_PATIENCE_S)
        return said.strip()

    def cpu_s(self) -> float:
        """Processor seconds that it has used so far, its children's not included."""
        return procfs.cpu_s(self.pid)

    def children(self) -> list[int]:
        """Process ids of its children: a planner's workers."""
        return procfs.children(self.pid)

    def resident_mib(self) -> float:
        """Memory that it holds."""
        return procfs.resident_mib(self.pid)

    def __enter__(self) -> BenchmarkProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()


class Crowd:
    """Client processes that hold all streams of a job between them, see `benchmarks.load.client`."""

    def __init__(self, processes: Sequence[BenchmarkProcess]) -> None:
        self._processes = processes

    def wait_until_ready(self) -> None:
        """Wait until every stream is open."""
        for process in self._processes:
            process.hear()

    def run(self, first: int, count: int, *, period_us: int = 0) -> int:
        """Have all run iterations, and return how many schedules they have received and checked so far."""
        begin_ns = time.monotonic_ns() + 50_000_000
        for process in self._processes:
            process.say(f"{first} {count} {period_us} {begin_ns}")
        return sum(int(process.hear()) for process in self._processes)


class MemorySampler:
    """Reads a process's resident memory every so often, in a thread, while the block runs."""

    def __init__(self, process: BenchmarkProcess, *, every_s: float) -> None:
        self._process = process
        self._every_s = every_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self.mib: list[float] = []

    def _sample(self) -> None:
        while True:
            self.mib.append(self._process.resident_mib())
            if self._ended.wait(self._every_s):
                return

    def __enter__(self) -> MemorySampler:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()


def _pipe(stream: IO[str] | None) -> IO[str]:
    if stream is None:
        raise ValueError("the process has no such pipe")
    return stream
