"""Worker processes that run functions as the ranks of a process group, many calls one after another."""

from __future__ import annotations

import contextlib
import multiprocessing
import tempfile
import traceback
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkServerProcess

CALL_LIMIT_S = PATIENCE_S
RANK_LIMIT_S = 200.0
"""How long ranks wait for each other, unless that is what a test is about: they tell why before the test gives up."""


@dataclass(frozen=True)
class Failure:
    """What a rank raised."""

    kind: str
    message: str
    text: str


class RankError(AssertionError):
    """Some ranks raised."""


def _serve(connection: Connection) -> None:
    """Run calls until told to stop."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    while True:
        call = connection.recv()
        if call is None:
            return
        function, rank, world_size, store, arguments = call
        try:
            dist.init_process_group(
                "gloo",
                init_method=f"file://{store}",
                rank=rank,
                world_size=world_size,
                timeout=timedelta(seconds=RANK_LIMIT_S),
            )
            answer = function(*arguments)
        except BaseException as error:
            answer = Failure(type(error).__name__, str(error), traceback.format_exc())
        connection.send(answer)
        if dist.is_initialized():
            # None takes its groups away under the others; some may be gone on purpose.
            with contextlib.suppress(RuntimeError):
                dist.barrier()
            dist.destroy_process_group()


class Workers:
    """Spawned processes; `run` uses the first few of them as ranks."""

    def __init__(self, count: int) -> None:
        # Forked from a process that has imported torch and nothing else happened in: a start costs milliseconds.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["torch", "trainer_agent.executor", "trainer_agent.profiler"])
        self._directory = tempfile.TemporaryDirectory()
        self._calls = 0
        self.processes: list[ForkServerProcess] = []
        self._connections: list[Connection] = []
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
            self.processes.append(process)
            self._connections.append(ours)

    def start(self, function: Callable[..., Any], world_size: int, *arguments: object) -> None:
        """Start a call on the first ``world_size`` processes."""
        self._calls += 1
        store = Path(self._directory.name) / f"store{self._calls}"
        for rank, connection in enumerate(self._connections[:world_size]):
            connection.send((function, rank, world_size, str(store), arguments))

    def answer(self, rank: int, *, limit_s: float = CALL_LIMIT_S) -> Any:
        """Wait for one rank's answer, or for its `Failure`."""
        if not self._connections[rank].poll(limit_s):
            raise TimeoutError(f"rank {rank} did not answer within {limit_s} s")
        return self._connections[rank].recv()

    def run(self, function: Callable[..., Any], world_size: int, *arguments: object) -> list[Any]:
        """Run ``function(*arguments)`` on that many ranks and return what each returned."""
        self.start(function, world_size, *arguments)
        answers = [self.answer(rank) for rank in range(world_size)]
        failures = {rank: answer for rank, answer in enumerate(answers) if isinstance(answer, Failure)}
        if failures:
            raise RankError("\n".join(f"rank {rank}: {failure.text}" for rank, failure in failures.items()))
        return answers

    def close(self) -> None:
        """End all processes."""
        for process, connection in zip(self.processes, self._connections, strict=True):
            if process.is_alive():
                with contextlib.suppress(OSError):
                    connection.send(None)
            process.join(5)
            if process.is_alive():
                process.kill()
                process.join()
        self._directory.cleanup()
