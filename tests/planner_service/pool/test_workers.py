"""Shows how worker processes start, that they give way to training, and that lost ones are replaced."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from pathlib import Path

import pytest
import scripted_engine
from pools import MEMORY_BYTES, pool, submit, warm
from serving import run, worker_pids

from planner_service.pool import Failed, Planned, SolverPool, process
from planner_service.pool import pool as pool_module


def test_workers_that_never_start_fail_what_waits() -> None:
    async def scenario() -> None:
        async with pool("no_such_engine") as made:
            result = await submit(made).result()
            assert isinstance(result, Failed)
            assert result.reason.startswith("the planner's workers do not start: ")

    run(scenario())


def test_workers_run_side_by_side() -> None:
    async def scenario() -> None:
        async with pool(workers=2) as made:
            stuck = submit(made, scripted_engine.HANG)
            assert isinstance(await submit(made).result(), Planned)
            assert not stuck.done

    run(scenario())


def test_workers_give_way_and_are_bounded() -> None:
    async def scenario() -> None:
        async with pool(keeps_pace=False) as made:
            await warm(made)
            (worker,) = worker_pids()
            assert os.getpriority(os.PRIO_PROCESS, worker) == 19
            assert os.sched_getscheduler(worker) == os.SCHED_IDLE
            limits = Path(f"/proc/{worker}/limits").read_text()
            (line,) = [line for line in limits.splitlines() if line.startswith("Max data size")]
            assert line.split()[3] == str(MEMORY_BYTES)

    run(scenario())


@pytest.mark.parametrize(
    ("every_s", "workers", "hurries"),
    [(0.0, 1, True), (1e6, 1, False), (0.0, 2, False)],
    ids=["nobody else plans", "not again and again", "another one plans"],
)
def test_replacement_hurries_where_nobody_else_plans_and_seldom(
    monkeypatch: pytest.MonkeyPatch, every_s: float, workers: int, hurries: bool
) -> None:
    monkeypatch.setattr(pool_module, "HURRY_EVERY_S", every_s)
    start, seen = process.WorkerProcess.start, []

    async def watched(*, engine: str, memory_bytes: int, hurry: bool) -> process.WorkerProcess:
        seen.append(hurry)
        return await start(engine=engine, memory_bytes=memory_bytes, hurry=hurry)

    monkeypatch.setattr(process.WorkerProcess, "start", watched)

    async def scenario() -> None:
        async with pool(workers=workers) as made:
            while made.idle < workers:
                await asyncio.sleep(0.001)
            assert seen[0], "the first is waited for"
            seen.clear()
            os.kill(worker_pids()[0], signal.SIGKILL)
            while not seen:
                await asyncio.sleep(0.001)
            assert seen == [hurries]

    run(scenario())


def test_first_worker_that_is_ready_is_told_of_once() -> None:
    async def scenario() -> None:
        told: list[bool] = []
        made = SolverPool(workers=2, memory_bytes=MEMORY_BYTES, engine=scripted_engine.__name__)
        made.on_ready(lambda: told.append(made.was_ready))
        assert not made.was_ready
        made.start()
        try:
            while made.idle < 2:
                await asyncio.sleep(0.001)
            assert told == [True]
        finally:
            await made.close()

    run(scenario())


def test_start_that_the_system_refuses_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_process(*arguments: object, **options: object) -> None:
        monkeypatch.undo()
        raise OSError(11, "no more processes")

    monkeypatch.setattr(process.asyncio, "create_subprocess_exec", no_process)

    async def scenario() -> None:
        async with pool() as made:
            await warm(made)

    run(scenario())


def test_slow_start_is_told(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(pool_module, "_SLOW_START_S", 0.0)
    caplog.set_level(logging.INFO)

    async def scenario() -> None:
        async with pool() as made:
            await warm(made)

    run(scenario())
    assert "a solver process was slow to start" in caplog.messages


def test_no_workers_is_not_allowed() -> None:
    with pytest.raises(ValueError, match=r"^workers: holds 0; allowed is 1 or more$"):
        SolverPool(workers=0, memory_bytes=MEMORY_BYTES)
