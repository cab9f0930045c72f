"""Shows that Plan answers its caller in time, with no job and nothing stored, and stops when nobody waits."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import grpc
import pytest
import scripted_engine
from dip.digests import plan_digest
from dip.planner.v1 import planner_pb2 as pb
from overruns import extend_limits_until_a_plan_is_found
from serving import (
    LONG_MS,
    batch,
    client,
    is_refused,
    planner,
    refusal,
    register,
    retry_delay,
    run,
    served,
    spec,
    stream,
    submit,
    take,
    worker_pids,
)

from planner_service.server import calls
from planner_service.server.calls import remaining_s

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner_service.server.handlers import Context
    from planner_service.server.lifecycle import PlannerServer


def request(script: int = 400, *, budget_ms: int = 300) -> pb.PlanRequest:
    return pb.PlanRequest(job=spec(budget_ms=budget_ms), batch=batch(script))


async def is_busy(server: PlannerServer) -> None:
    """Wait until the planner's only worker is given something to do."""
    while not server._pool._busy:
        await asyncio.sleep(0.01)


async def is_idle(server: PlannerServer) -> None:
    """Wait until the planner's only worker is ready and has nothing to do."""
    while not server.idle_workers:
        await asyncio.sleep(0.01)


def test_plan_without_a_job() -> None:
    async def scenario() -> None:
        async with served() as stub:
            plan = (await stub.Plan(request())).plan
            assert plan.digest == plan_digest(plan, batch())
            assert not (await stub.ListJobs(pb.ListJobsRequest())).jobs

    run(scenario())


def test_partition_in_the_request_is_kept() -> None:
    async def scenario() -> None:
        async with served() as stub:
            asked = request()
            asked.partition.CopyFrom(scripted_engine.even_partition(asked.job))
            for chunk in asked.partition.chunks:
                chunk.rank = 1 - chunk.rank
            assert (await stub.Plan(asked)).plan.partition == asked.partition

    run(scenario())


def test_solver_that_hangs_is_bounded() -> None:
    async def scenario() -> None:
        async with served(solve_grace_ms=100) as stub:
            assert (await stub.Plan(request(scripted_engine.HANG))).plan.fallback

    run(scenario())


def test_plan_of_a_solver_that_hangs_afterwards_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with planner(solve_grace_ms=100) as server, client(server) as stub:
            extend_limits_until_a_plan_is_found(monkeypatch, server)
            plan = (await stub.Plan(request(scripted_engine.HANG_WITH_PLAN))).plan
            assert not plan.fallback
            assert plan.search.steps[-1].engine.startswith("interrupted: the solver did not stop within")

    run(scenario())


def test_deadline_bounds_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    # However late the call comes, and its answer: this machine may stand still meanwhile.
    monkeypatch.setattr(calls, "remaining_s", lambda _: 1.0)

    async def scenario() -> None:
        async with planner() as server, client(server) as stub:
            extend_limits_until_a_plan_is_found(monkeypatch, server)
            plan = (await stub.Plan(request(scripted_engine.HANG_WITH_PLAN, budget_ms=LONG_MS))).plan
            assert plan.search.steps[-1].engine == "interrupted: the solver did not stop within 0.8 s"

    run(scenario())


def test_deadline_that_leaves_no_time_costs_no_worker() -> None:
    async def scenario() -> None:
        async with served() as stub:
            await stub.Plan(request())
            (worker,) = worker_pids()
            for timeout_s in (0.001, 0.1, 0.2):
                assert (
                    await refusal(stub.Plan(request(), timeout=timeout_s))
                ).code() == grpc.StatusCode.DEADLINE_EXCEEDED
            await stub.Plan(request())
            assert worker_pids() == [worker]

    run(scenario())


@pytest.mark.parametrize(("stated", "left_s"), [(None, None), (292 * 365 * 86_400.0, None), (30.0, 30.0), (-0.5, 0.0)])
def test_no_deadline_is_none_however_it_is_stated(stated: float | None, left_s: float | None) -> None:
    assert remaining_s(cast("Context", SimpleNamespace(time_remaining=lambda: stated))) == left_s


def test_caller_that_leaves_frees_the_worker() -> None:
    async def scenario() -> None:
        async with planner() as server, client(server) as stub:
            await is_idle(server)
            (worker,) = worker_pids()
            call = stub.Plan(request(scripted_engine.HANG, budget_ms=LONG_MS))
            await is_busy(server)
            call.cancel()
            await stub.Plan(request())
            while worker in worker_pids():
                await asyncio.sleep(0.01)

    run(scenario())


def test_calls_and_jobs_take_turns(gate: Callable[[], None]) -> None:
    async def scenario() -> None:
        async with planner() as server, client(server) as stub:
            await stub.RegisterJob(register(budget_ms=LONG_MS))  # as long may they wait at the gate
            await is_idle(server)
            for iteration in range(4):
                await stub.SubmitBatch(submit(iteration, scripted_engine.WAIT_AT_GATE))
            await is_busy(server)
            call = stub.Plan(request())
            while not server._pool.waiting:
                await asyncio.sleep(0.01)
            await asyncio.to_thread(gate)
            await call
            plans = stub.StreamSchedules(stream())
            await take(plans, 1)
            await is_refused(stub.GetPlan(pb.GetPlanRequest(job_id="job", iteration=1)), grpc.StatusCode.NOT_FOUND)
            for _ in range(3):
                await asyncio.to_thread(gate)
                await take(plans, 1)

    run(scenario())


def test_too_many_calls_are_exhausted() -> None:
    async def scenario() -> None:
        async with planner(max_queued_batches=1) as server, client(server) as stub:
            await is_idle(server)
            first = stub.Plan(request(scripted_engine.HANG, budget_ms=LONG_MS))
            await is_busy(server)
            error = await refusal(stub.Plan(request()))
            assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert retry_delay(error) > 0
            first.cancel()
            await is_idle(server)
            await stub.Plan(request())

    run(scenario())
