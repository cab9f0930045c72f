"""Shows that every solve gets a result in bounded time, whatever happens to its worker."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import scripted_engine
from dip.digests import streamed_digest
from dip.errors import CannotFitError
from dip.partition import default_partition
from dip.planner.v1 import planner_pb2 as pb
from serving import RANKS, batch, register, run, spec, worker_pids

from planner_service.pool import (
    Cancelled,
    Failed,
    Partitioned,
    PartitionTask,
    Planned,
    PlanTask,
    Refused,
    Solve,
    SolverPool,
    process,
)
from planner_service.pool import pool as pool_module
from planner_service.pool.solve import FRESH_START_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

MEMORY_BYTES = 2**29
LIMIT_S = 0.5


@contextlib.asynccontextmanager
async def pool(engine: str = scripted_engine.__name__, *, workers: int = 1) -> AsyncIterator[SolverPool]:
    made = SolverPool(workers=workers, memory_bytes=MEMORY_BYTES, engine=engine)
    made.start()
    try:
        yield made
    finally:
        await made.close()
        while worker_pids():  # killed, and gone as soon as their idle priority gets a moment
            await asyncio.sleep(0.01)


def submit(
    made: SolverPool, script: int = 400, *, iteration: int = 0, lane: str = "job", limit_s: float = LIMIT_S
) -> Solve:
    request = pb.PlanRequest(job=spec(), batch=batch(script), partition=scripted_engine.even_partition(spec()))
    task = PlanTask(request=request.SerializeToString(), budget_ms=100, iteration=iteration)
    return made.submit(task, lane=lane, order=(iteration,), limit_s=limit_s)


def plan_of(result: object) -> pb.Plan:
    assert isinstance(result, Planned)
    return pb.GetPlanResponse.FromString(result.plan.answer).plan


async def warm(made: SolverPool) -> None:
    """Wait until a worker has answered, so that what follows measures no start."""
    assert isinstance(await submit(made).result(), Planned)


def test_plan_comes_split_into_what_each_rank_is_sent() -> None:
    async def scenario() -> None:
        async with pool() as made:
            result = await submit(made, iteration=7).result()
            plan = plan_of(result)
            assert isinstance(result, Planned)
            assert (result.plan.makespan_us, result.plan.fallback, result.interrupted) == (plan.makespan_us, False, "")
            responses = [pb.StreamSchedulesResponse.FromString(data) for data in result.plan.responses]
            assert [response.iteration for response in responses] == [7] * RANKS
            assert [response.schedule.schedule.rank for response in responses] == list(range(RANKS))
            assert {streamed_digest(response.schedule) for response in responses} == {plan.digest}
            assert not plan.ranks, "it is kept twice"
            assert not plan.sub_microbatches, "it is kept twice"

    run(scenario())


@pytest.mark.parametrize(
    "script",
    [scripted_engine.HANG_WITH_PLAN, scripted_engine.DIE_WITH_PLAN, scripted_engine.RAISE_WITH_PLAN],
    ids=["overruns", "is killed", "has a bug"],
)
def test_plan_found_so_far_is_kept(script: int) -> None:
    async def scenario() -> None:
        async with pool() as made:
            result = await submit(made, script, limit_s=3).result()  # enough on busy machines to find a plan
            assert isinstance(result, Planned)
            assert result.interrupted
            assert not plan_of(result).fallback
            await warm(made)

    run(scenario())


@pytest.mark.parametrize(
    "script",
    [scripted_engine.HANG, scripted_engine.DIE, scripted_engine.RAISE, scripted_engine.EAT_MEMORY],
    ids=["overruns", "is killed", "has a bug", "runs out of memory"],
)
def test_nothing_found_makes_the_fallback(script: int) -> None:
    async def scenario() -> None:
        async with pool() as made:
            result = await submit(made, script, limit_s=5 if script == scripted_engine.EAT_MEMORY else LIMIT_S).result()
            assert plan_of(result).fallback
            await warm(made)

    run(scenario())


def test_fallback_that_dies_too_gives_the_reason() -> None:
    async def scenario() -> None:
        async with pool() as made:
            assert await submit(made, scripted_engine.DIE_ALWAYS).result() == Failed(
                reason="the solver's process ended with signal 9"
            )
            await warm(made)

    run(scenario())


def test_worker_is_not_blamed_for_time_in_which_this_process_was_stopped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    monkeypatch.setenv(scripted_engine.GATE, str(gate))
    monkeypatch.setattr(process, "starved_s", lambda pid: 0.0)
    monkeypatch.setattr(process, "_STOPPED_S", 2.0)

    async def scenario() -> None:
        async with pool() as made:
            await warm(made)
            workers = worker_pids()
            solve = submit(made, scripted_engine.WAIT_AT_GATE)
            while not solve.started_s:
                await asyncio.sleep(0)
            await asyncio.sleep(0.05)
            time.sleep(LIMIT_S + 2.5)  # nothing else runs here, as if this process were stopped
            await asyncio.sleep(0.1)
            gate.write_text("")
            result = await solve.result()
            assert isinstance(result, Planned)
            assert (result.interrupted, plan_of(result).fallback) == ("", False)
            assert worker_pids() == workers

    run(scenario())


def test_overrun_is_bounded_by_the_limit() -> None:
    async def scenario() -> None:
        async with pool() as made:
            await warm(made)
            began = time.monotonic()
            await submit(made, scripted_engine.HANG_WITH_PLAN).result()
            assert time.monotonic() - began >= LIMIT_S  # and it ended at all, as the solver would not

    run(scenario())


def test_worker_that_is_not_let_run_answers_in_time_and_is_not_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fifo = tmp_path / "gate"
    os.mkfifo(fifo)
    monkeypatch.setenv(scripted_engine.GATE, str(fifo))
    monkeypatch.setattr(process, "starved_s", lambda pid: time.monotonic())  # it waited all the time
    monkeypatch.setattr(process, "MOST_EXTENSION", 1000)  # as it may truly wait, beside whatever else runs

    async def scenario() -> None:
        async with pool() as made:
            await warm(made)
            (worker,) = worker_pids()
            result = await submit(made, scripted_engine.WAIT_AT_GATE_WITH_PLAN).result()
            assert isinstance(result, Planned)
            assert result.interrupted == f"the solver did not stop within {LIMIT_S} s"
            await asyncio.to_thread(fifo.write_text, "go")
            await warm(made)
            assert worker_pids() == [worker]

    run(scenario())


def test_worker_that_is_not_let_run_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "starved_s", lambda pid: time.monotonic())

    async def scenario() -> None:
        async with pool() as made:
            await warm(made)
            (worker,) = worker_pids()
            assert plan_of(await submit(made, scripted_engine.HANG, limit_s=0.2).result()).fallback
            assert worker not in worker_pids()

    run(scenario())


def test_what_cannot_fit_is_refused_and_costs_no_worker() -> None:
    async def scenario() -> None:
        async with pool() as made:
            await warm(made)
            before = worker_pids()
            result = await submit(made, scripted_engine.CANNOT_FIT).result()
            assert isinstance(result, Refused)
            assert isinstance(result.error, CannotFitError)
            assert (result.error.rank, result.error.needed_bytes, result.error.available_bytes) == (1, 20, 10)
            assert worker_pids() == before

    run(scenario())


def test_cancelling_a_running_solve_takes_milliseconds() -> None:
    async def scenario() -> None:
        async with pool() as made:
            await warm(made)
            (worker,) = worker_pids()
            solve = submit(made, scripted_engine.HANG, limit_s=60)
            await asyncio.sleep(0.05)  # it is running now, or else cancelled in the queue, which must be as quick
            began = time.monotonic()
            solve.cancel()
            assert await solve.result() == Cancelled()
            assert time.monotonic() - began < 0.05
            while worker in worker_pids():
                await asyncio.sleep(0.001)
            await warm(made)

    run(scenario())


def test_withdrawn_solve_costs_no_worker_and_the_next_one_is_done_by_the_same(gate: Callable[[], None]) -> None:
    async def scenario() -> None:
        async with pool() as made:
            await warm(made)
            (worker,) = worker_pids()
            solve = submit(made, scripted_engine.WAIT_AT_GATE, limit_s=60)
            while not solve.started_s:
                await asyncio.sleep(0.001)
            solve.withdraw()
            assert await solve.result() == Cancelled()
            following = submit(made)
            await asyncio.to_thread(gate)
            assert not plan_of(await following.result()).fallback
            assert worker_pids() == [worker]

    run(scenario())


@pytest.mark.parametrize(("left_s", "survives"), [(FRESH_START_S + 60, False), (FRESH_START_S / 2, True)])
def test_solve_given_up_kills_its_worker_where_that_is_sooner(
    gate: Callable[[], None], left_s: float, survives: bool
) -> None:
    async def scenario() -> None:
        async with pool() as made:
            await warm(made)
            (worker,) = worker_pids()
            solve = submit(made, scripted_engine.WAIT_AT_GATE, limit_s=60)
            while not solve.started_s:
                await asyncio.sleep(0.001)
            solve.limit_s = left_s
            solve.give_up()
            assert await solve.result() == Cancelled()
            if survives:
                await asyncio.to_thread(gate)
            await warm(made)
            assert (worker_pids() == [worker]) is survives

    run(scenario())


def test_cancelled_wait_leaves_the_solve_alone() -> None:
    async def scenario() -> None:
        async with pool() as made:
            solve = submit(made)
            waiting = asyncio.create_task(solve.result())
            await asyncio.sleep(0)
            waiting.cancel()
            assert isinstance(await solve.result(), Planned)

    run(scenario())


def test_worker_killed_while_idle_is_replaced_and_costs_no_solve() -> None:
    async def scenario() -> None:
        async with pool() as made:
            for _ in range(3):
                await warm(made)
                (worker,) = worker_pids()
                os.kill(worker, signal.SIGKILL)
                while worker in worker_pids():
                    await asyncio.sleep(0.001)
                assert not plan_of(await submit(made).result()).fallback

    run(scenario())


def test_partition_is_searched_or_else_the_default_one() -> None:
    async def scenario() -> None:
        async with pool() as made:
            request = register(layers=8)
            searched = scripted_engine.even_partition(request.spec)
            assert await partition(made, request) == searched
            request.spec.model.modules[0].name = scripted_engine.HANG_PARTITION
            request.spec.model.modules[1].inputs[0] = scripted_engine.HANG_PARTITION
            assert await partition(made, request) == default_partition(request.spec)

    run(scenario())


async def partition(made: SolverPool, request: pb.RegisterJobRequest) -> pb.Partition:
    task = PartitionTask(request=request.SerializeToString(), budget_ms=100)
    result = await made.submit(task, lane="job", order=(-1,), limit_s=LIMIT_S).result()
    assert isinstance(result, Partitioned)
    return pb.Partition.FromString(result.partition)


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
            stuck = submit(made, scripted_engine.HANG, limit_s=60)
            assert isinstance(await submit(made).result(), Planned)
            assert not stuck.done

    run(scenario())


def test_workers_give_way_and_are_bounded() -> None:
    async def scenario() -> None:
        async with pool() as made:
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


def test_no_solve_starts_once_the_pool_drains() -> None:
    async def scenario() -> None:
        async with pool() as made:
            stuck = submit(made, scripted_engine.HANG, limit_s=60)
            made.drain()
            assert await stuck.result() == Cancelled()
            assert await submit(made).result() == Cancelled()

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
