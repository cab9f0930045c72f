"""Shows that a worker that died by itself is told from one that was killed for it, even where it is killed again."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import scripted_engine
from serving import run, worker_pids

from planner_service.pool.process import WorkerProcess

if TYPE_CHECKING:
    import pytest


def test_killing_a_worker_that_has_just_died_leaves_how_it_died_to_be_told() -> None:
    async def scenario() -> None:
        for _ in range(5):
            worker = await WorkerProcess.start(engine=scripted_engine.__name__, memory_bytes=2**29)
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
        worker = await WorkerProcess.start(engine=scripted_engine.__name__, memory_bytes=2**29)
        (pid,) = worker_pids()
        environment = Path(f"/proc/{pid}/environ").read_bytes()
        await worker.end()
        assert b"PYTHONPATH=" in environment
        assert b"hunter2" not in environment

    run(scenario())
