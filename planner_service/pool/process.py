"""A worker as the pool sees it: a child process and the socket that joins them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pickle
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from planner_service.logs import ChildOutput
from planner_service.pool.messages import HEADER, Finished, Found, Message, Ready, Taken, pack
from planner_service.pool.starvation import starved_s

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from planner_service import logs
    from planner_service.pool.messages import SplitPlan, Task

START_LIMIT_S: Final = 300.0
"""A worker compiles and imports for seconds, and for much longer at idle priority beside a busy training."""

_READ_AHEAD_BYTES: Final = 2**20
_EXIT_LIMIT_S: Final = 1.0

# Several threads of a numerical library would take the cores that the pool left to training.
_ONE_THREAD: Final = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}


_NOT_FOR_SOLVERS: Final = ("DIP_STORE", "OTEL_")
"""Beginnings of variables that may hold a password, or a key to a collector. (Spelt out: solver processes import this,
and must not import all that reads the settings.)"""

MOST_EXTENSION: Final = 4
"""Times its limit after which a worker is killed, however little it was let run."""

_SHORTEST_EXTENSION_S: Final = 0.05

_STOPPED_S: Final = 0.5
"""A wait that ends so much too late was not late: this process was stopped."""


_log = logging.getLogger(__name__)


class WorkerLostError(Exception):
    """The worker died, or was killed because it overran; it must be replaced.

    Parameters
    ----------
    blameless
        It never had the task in its hands, so that the task cannot be what killed it.
    overran
        It was killed because of the clock.
    """

    def __init__(self, reason: str, *, blameless: bool = False, overran: bool = False) -> None:
        super().__init__(reason)
        self.blameless = blameless
        self.overran = overran


class WorkerProcess:
    """One live worker. Made by `start`; does one task at a time."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        output: ChildOutput,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._output = output
        self.works_on({})
        self.exited: asyncio.Task[int] = asyncio.create_task(process.wait())

    @classmethod
    async def start(cls, *, engine: str, memory_bytes: int, hurry: bool = False) -> WorkerProcess:
        """Spawn a worker and wait until it is ready.

        Neither a fork of this process, whose gRPC threads would not survive one, nor a second run of the user's
        main module: a fresh interpreter that gets this one's import path.

        Parameters
        ----------
        engine
            Module that solves.
        memory_bytes
            What the worker may hold.
        hurry
            Have it start at this process's priority, and give way once it is ready; else it gives way from the first.

        Raises
        ------
        WorkerLostError
            Where it ends, or is not ready in time.
        """
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours, limit=_READ_AHEAD_BYTES)
        async with contextlib.AsyncExitStack() as undo:
            undo.enter_context(theirs)
            undo.callback(writer.close)
            output = await ChildOutput.open(_log)
            undo.push_async_callback(output.end)
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-P", "-m", "planner_service.pool.worker"),
                *("--socket", str(theirs.fileno())),
                *("--parent", str(os.getpid())),
                *("--memory-bytes", str(memory_bytes)),
                *("--engine", engine),
                *(("--hurry",) if hurry else ()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=output.write_end,
                pass_fds=(theirs.fileno(),),
                env=_environment(),
            )
            theirs.close()
            output.is_inherited()
            worker = cls(process, reader, writer, output)
            undo.push_async_callback(worker.end)
            await worker._become_ready()
            undo.pop_all()
        return worker

    async def run(
        self, task: Task, *, limit_s: float, keep: Callable[[SplitPlan], None], overdue: Callable[[], None]
    ) -> Finished:
        """Have a task done.

        A worker that was not let run, because training needs the cores, is not stuck, and a new one would have to
        start under the same conditions: time that it waited for a core extends the limit, up to `MOST_EXTENSION` times.
        So does time in which this process itself was not let run (a stopped one that goes on): the worker's answer may
        lie in its socket.

        Parameters
        ----------
        limit_s
            Wall clock after which the worker is killed.
        keep
            Called with each plan found on the way.
        overdue
            Called where the limit has passed and is extended.

        Raises
        ------
        WorkerLostError
            Where the worker died or took too long; it is killed then.
        """
        began_s, starved_before_s = time.monotonic(), starved_s(self._process.pid)
        talk = asyncio.create_task(self._talk(task, keep))
        left_s = limit_s
        try:
            while left_s > 0:
                asked_s = time.monotonic()
                done, _ = await asyncio.wait({talk}, timeout=left_s)
                if done:
                    return talk.result()
                overslept_s = time.monotonic() - asked_s - left_s
                if overslept_s > _STOPPED_S:
                    began_s += overslept_s + _STOPPED_S  # the rest is for reading what has come meanwhile
                extended_s = limit_s + starved_s(self._process.pid) - starved_before_s
                left_s = began_s + min(extended_s, MOST_EXTENSION * limit_s) - time.monotonic()
                if left_s > 0:
                    overdue()
                    left_s = max(left_s, _SHORTEST_EXTENSION_S)
        finally:
            talk.cancel()
        self.kill()
        raise WorkerLostError(describe_overrun(limit_s), overran=True)

    async def _talk(self, task: Task, keep: Callable[[SplitPlan], None]) -> Finished:
        taken = False
        try:
            payload = pack(task)
            self._writer.write(HEADER.pack(len(payload)) + payload)
            await self._writer.drain()
            while True:
                match await self._receive():
                    case Taken():
                        taken = True
                    case Found(plan=plan):
                        keep(plan)
                    case Finished() as finished:
                        return finished
        except (ConnectionError, asyncio.IncompleteReadError) as error:
            self.kill()
            raise WorkerLostError(await self._why_it_ended(), blameless=not taken) from error

    def kill(self) -> None:
        """End the process now; its memory and its solver go with it."""
        # Not by Process.kill(), which reaps a child that has just died by itself: asyncio, which waits for it as well,
        # would then report exit code 255 in place of the reason why it ended.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)
        self._writer.close()

    async def end(self) -> None:
        """Kill the process, and wait until it is gone."""
        self.kill()
        await asyncio.wait({self.exited}, timeout=_EXIT_LIMIT_S)
        await self._output.end()

    def works_on(self, about: Mapping[str, logs.Value]) -> None:
        """Say with what it writes to the log what it is about."""
        self._output.about = {**about, "worker": self._process.pid}

    async def _become_ready(self) -> None:
        try:
            async with asyncio.timeout(START_LIMIT_S):
                message = await self._receive()
        except asyncio.IncompleteReadError as error:
            raise WorkerLostError(await self._why_it_ended()) from error
        except TimeoutError as error:
            raise WorkerLostError(f"the worker was not ready within {START_LIMIT_S:g} s") from error
        if not isinstance(message, Ready):
            raise WorkerLostError(f"the worker said {message!r} before it was ready")

    async def _receive(self) -> Message:
        (size,) = HEADER.unpack(await self._reader.readexactly(HEADER.size))
        message: Message = pickle.loads(await self._reader.readexactly(size))
        return message

    async def _why_it_ended(self) -> str:
        await asyncio.wait({self.exited}, timeout=_EXIT_LIMIT_S)
        if not self.exited.done():
            return "the solver's process closed its end"
        code = self.exited.result()
        return f"the solver's process ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}"


def describe_overrun(limit_s: float) -> str:
    """Why a solve was ended by the clock."""
    return f"the solver did not stop within {limit_s:.1f} s"


def _environment() -> dict[str, str]:
    """Ours, with this interpreter's import path: what can be imported here can be there, and nothing else.

    Without what may hold a secret: a solver works on what clients sent, and talks to nobody.
    """
    path = os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_FOR_SOLVERS)}
    return _ONE_THREAD | kept | {"PYTHONPATH": path}
