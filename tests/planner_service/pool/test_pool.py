"""Shows that every solve gets a result in bounded time, whatever happens to its worker."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import scripted_engine
from dip.digests import streamed_digest
from dip.errors import CannotFitError
from dip.partition import default_partition
from dip.planner.v1 import planner_pb2 as pb
from pools import LONG_S, SHORT_S, plan_of, pool, submit, warm
from serving import RANKS, register, run, worker_pids

from planner_service.pool import (
    Cancelled,
    Failed,
    Partitioned,
    PartitionTask,
    Planned,
    Refused,
    SolverPool,
    process,
)
from planner_service.pool.solve import FRESH_START_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from planner_service.pool import Solve

HOUR_S = 3600.0


async def begun(solve: Solve) -> None:
    """Wait until a worker is given the solve."""
    while not solve.started_s:
        await asyncio.sleep(0)


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
def test_plan_found_so_far_is_kept(script: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "MOST_EXTENSION", 1000)

    async def scenario() -> None:
        async with pool() as made:
            solve = submit(made, script, limit_s=SHORT_S if script == scripted_engine.HANG_WITH_PLAN else LONG_S)
            # Its limit is extended until there is a plan to be kept.
            monkeypatch.setattr(process, "starved_s", lambda pid: 0.0 if solve.best else time.monotonic())
            result = await solve.result()
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
            limit_s = SHORT_S if script == scripted_engine.HANG else LONG_S
            result = await submit(made, script, limit_s=limit_s).result()
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
    monkeypatch.setattr(process, "_STOPPED_S", HOUR_S / 2)
    stopped_s = 0.0
    monkeypatch.setattr(process, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + stopped_s))

    async def scenario() -> None:
        nonlocal stopped_s
        async with pool() as made:
            await warm(made)
            workers = worker_pids()
            solve = submit(made, scripted_engine.WAIT_AT_GATE, limit_s=SHORT_S)
            await begun(solve)
            stopped_s = HOUR_S
            await asyncio.sleep(2 * SHORT_S)
            await asyncio.to_thread(gate.write_text, "")
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
            await submit(made, scripted_engine.HANG_WITH_PLAN, limit_s=SHORT_S).result()
            assert time.monotonic() - began >= SHORT_S  # and it ended at all, as the solver would not

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
            result = await submit(made, scripted_engine.WAIT_AT_GATE_WITH_PLAN, limit_s=SHORT_S).result()
            assert isinstance(result, Planned)
            assert result.interrupted == f"the solver did not stop within {SHORT_S} s"
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


def test_cancelling_a_running_solve_waits_for_nothing() -> None:
    async def scenario() -> None:
        async with pool() as made:
            await warm(made)
            (worker,) = worker_pids()
            solve = submit(made, scripted_engine.HANG)
            await begun(solve)
            solve.cancel()
            assert solve.done
            assert await solve.result() == Cancelled()
            while worker in worker_pids():
                await asyncio.sleep(0.001)
            await warm(made)

    run(scenario())


def test_solve_cancelled_between_the_queue_and_its_worker_is_not_begun() -> None:
    async def scenario() -> None:
        async with pool() as made:
            await warm(made)
            workers = worker_pids()
            solve = submit(made, scripted_engine.HANG)
            while made.waiting:
                await asyncio.sleep(0)
            solve.cancel()
            await warm(made)
            assert not solve.started_s
            assert worker_pids() == workers

    run(scenario())


def test_withdrawn_solve_costs_no_worker_and_the_next_one_is_done_by_the_same(gate: Callable[[], None]) -> None:
    async def scenario() -> None:
        async with pool() as made:
            await warm(made)
            (worker,) = worker_pids()
            solve = submit(made, scripted_engine.WAIT_AT_GATE)
            await begun(solve)
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
            solve = submit(made, scripted_engine.WAIT_AT_GATE)
            await begun(solve)
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
            assert await partition(made, request, limit_s=LONG_S) == searched
            request.spec.model.modules[0].name = scripted_engine.HANG_PARTITION
            request.spec.model.modules[1].inputs[0] = scripted_engine.HANG_PARTITION
            assert await partition(made, request, limit_s=SHORT_S) == default_partition(request.spec)

    run(scenario())


async def partition(made: SolverPool, request: pb.RegisterJobRequest, *, limit_s: float) -> pb.Partition:
    task = PartitionTask(request=request.SerializeToString(), budget_ms=100)
    result = await made.submit(task, lane="job", order=(-1,), limit_s=limit_s).result()
    assert isinstance(result, Partitioned)
    return pb.Partition.FromString(result.partition)


def test_no_solve_starts_once_the_pool_drains() -> None:
    async def scenario() -> None:
        async with pool() as made:
            stuck = submit(made, scripted_engine.HANG)
            made.drain()
            assert await stuck.result() == Cancelled()
            assert await submit(made).result() == Cancelled()

    run(scenario())
