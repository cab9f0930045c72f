"""Shows how a worker starts, with which priority and secrets, and that how it died is told even where it is killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import pytest
import scripted_engine
from serving import run, worker_pids

from planner_service.pool.process import WorkerProcess


def test_killing_a_worker_that_has_just_died_leaves_how_it_died_to_be_told() -> None:
    async def scenario() -> None:
        for _ in range(5):
            worker = await WorkerProcess.start(engine=scripted_engine.__name__, memory_bytes=2**29, hurry=True)
            (pid,) = worker_pids()
            os.kill(pid, signal.SIGTERM)
            _wait_until_dead(pid)
            worker.kill()
            assert await worker.exited == -signal.SIGTERM
            await worker.end()

    run(scenario())


def _wait_until_dead(pid: int) -> None:
    """Wait for the child to be gone or a zombie, without reaping it and without the event loop's turn."""
    with contextlib.suppress(ChildProcessError):  # asyncio's own wait was first
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def test_worker_inherits_nothing_that_may_hold_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIP_STORE", "redis://:hunter2@127.0.0.1:6379/0")
    monkeypatch.setenv("DIP_STORE_PASSWORD_FILE", "/run/hunter2")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=hunter2")

    async def scenario() -> None:
        worker = await WorkerProcess.start(engine=scripted_engine.__name__, memory_bytes=2**29, hurry=True)
        (pid,) = worker_pids()
        environment = Path(f"/proc/{pid}/environ").read_bytes()
        await worker.end()
        assert b"PYTHONPATH=" in environment
        assert b"hunter2" not in environment

    run(scenario())


@pytest.mark.parametrize("hurry", [True, False])
def test_worker_gives_way_from_the_first_or_where_it_hurries_once_it_is_ready(
    hurry: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    monkeypatch.setenv(scripted_engine.START_GATE, str(gate))
    ours, idle = _priority(os.getpid()), (os.SCHED_IDLE, 19)

    async def scenario() -> None:
        starting = asyncio.create_task(
            WorkerProcess.start(engine=scripted_engine.__name__, memory_bytes=2**29, hurry=hurry)
        )
        opened = await _opened(gate)
        (pid,) = worker_pids()
        starts_with = _priority(pid)
        os.close(opened)
        worker = await starting
        works_with = {_priority(int(thread)) for thread in os.listdir(f"/proc/{pid}/task")}
        await worker.end()
        assert starts_with == (ours if hurry else idle)
        assert works_with == {idle}

    run(scenario())


def _priority(thread: int) -> tuple[int, int]:
    return os.sched_getscheduler(thread), os.getpriority(os.PRIO_PROCESS, thread)


async def _opened(gate: Path) -> int:
    """Open a FIFO for writing, once somebody waits to read it."""
    while True:
        try:
            return os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # nobody does
            await asyncio.sleep(0.001)
