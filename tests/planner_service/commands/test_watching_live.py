"""Shows `--watch` as users run it: in a terminal until Ctrl-C, and over the end and the start of its planner."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest
from serving import client, planner, register, run
from waiting import PATIENCE_S
from watched_jobs import documented, in_thread, trained

from benchmarks.held_port import HeldPort

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENT_DIP = str(Path(__file__).with_name("patient_dip.py"))


@contextlib.contextmanager
def started(*arguments: str, **how: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Run `dip` as a process of its own until the block ends."""
    # Whoever runs the tests in the background may have them, and all that they start, ignore SIGINT.
    command = ["env", "--default-signal=INT", sys.executable, PATIENT_DIP, *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, **how) as process:
        try:
            yield process
        finally:
            process.kill()


class Terminal:
    """The other end of a terminal: what a program draws on it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.drawn = b""

    def wait_for(self, text: bytes) -> None:
        """Read until a text was drawn."""
        ends_s = time.monotonic() + PATIENCE_S
        while text not in self.drawn:
            readable, _, _ = select.select([self._descriptor], [], [], max(0, ends_s - time.monotonic()))
            assert readable, self.drawn
            self.drawn += os.read(self._descriptor, 65_536)


@pytest.mark.parametrize("command", [["jobs"], ["status", "job"]])
def test_ctrl_c_ends_a_watch_and_gives_the_screen_back(command: list[str]) -> None:
    ours, theirs = pty.openpty()
    terminal = Terminal(ours)
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}

    def watch(address: str) -> tuple[int, bytes]:
        how = {"stdout": theirs, "stdin": theirs, "env": environment}
        with started(*command, "--watch", "--interval", "3600", "--endpoint", address, **how) as process:
            terminal.wait_for(b"ahead")
            process.send_signal(signal.SIGINT)
            terminal.wait_for(b"\x1b[?1049l")
            assert process.stderr is not None
            return process.wait(PATIENCE_S), process.stderr.read()

    async def scenario() -> None:
        async with trained() as server:
            assert await in_thread(watch, server.address) == (130, b"")

    try:
        run(scenario())
        assert terminal.drawn.startswith(b"\x1b[?1049h")
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_watch_goes_on_when_its_planner_is_back_without_the_job() -> None:
    def answer(process: subprocess.Popen[bytes], key: str) -> dict[str, Any]:
        """Return the next answer that has a key."""
        output: IO[bytes] | None = process.stdout
        assert output is not None
        while key not in (found := json.loads(output.readline())):
            continue
        return dict(found)

    async def scenario() -> None:
        held = HeldPort()  # nobody else takes it while no planner does
        address = f"127.0.0.1:{held.number}"
        async with planner(listen=address) as server, client(server) as stub:
            await stub.RegisterJob(register())
            options = ("--watch", "--json", "--interval", "0.1", "--endpoint", address)
            with started("status", "job", *options, stdout=subprocess.PIPE) as process:
                assert (await in_thread(answer, process, "job"))["job"]["attempt"] == 1
                await server.drain()
                while "is away" not in (away := await in_thread(answer, process, "error"))["error"]:
                    continue  # a question that the end of the planner cut off
                assert away.keys() == documented("away")
                async with planner(listen=address) as again, client(again) as other:
                    while "knows no job" not in (await in_thread(answer, process, "error"))["error"]:
                        continue
                    await other.RegisterJob(register(attempt=2))
                    assert (await in_thread(answer, process, "job"))["job"]["attempt"] == 2

    run(scenario())
