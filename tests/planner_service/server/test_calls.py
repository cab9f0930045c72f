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
from serving import (
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
    from planner_service.server.handlers import Context
    from planner_service.server.lifecycle import PlannerServer


LONG_MS = 600_000
"""A search that outlives the test."""


def request(script: int = 400, *, budget_ms: int = 300) -> pb.PlanRequest:
    return pb.PlanRequest(job=spec(budget_ms=budget_ms), batch=batch(script))


async def is_busy(server: PlannerServer, *, busy: bool = True) -> None:
    """Wait until the planner's only worker has nothing to do, or (once it was seen idle) something."""
    while (server.idle_workers == 0) is not busy:
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


@pytest.mark.parametrize(
    ("script", "fallback"), [(scripted_engine.HANG_WITH_PLAN, False), (scripted_engine.HANG, True)]
)
def test_solver_that_hangs_is_bounded(script: int, fallback: bool) -> None:
    async def scenario() -> None:
        async with served(solve_grace_ms=3_000) as stub:  # time for it to hand out its plan
            plan = (await stub.Plan(request(script))).plan
            assert plan.fallback == fallback

    run(scenario())


def test_deadline_bounds_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    # More of it than is usual is left for the answer, as this machine may stand still meanwhile.
    monkeypatch.setattr(calls, "_ANSWER_MARGIN_S", 28.0)

    async def scenario() -> None:
        async with served(max_budget_ms=LONG_MS) as stub:
            await stub.Plan(request())
            plan = (await stub.Plan(request(scripted_engine.HANG_WITH_PLAN, budget_ms=LONG_MS), timeout=30)).plan
            assert plan.search.steps[-1].engine.startswith("interrupted: the solver did not stop within")

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
        async with planner(max_budget_ms=LONG_MS) as server, client(server) as stub:
            await stub.Plan(request())
            (worker,) = worker_pids()
            call = stub.Plan(request(scripted_engine.HANG, budget_ms=LONG_MS))
            await is_busy(server)
            call.cancel()
            await stub.Plan(request())
            assert worker not in worker_pids()

    run(scenario())


def test_calls_and_jobs_take_turns() -> None:
    async def scenario() -> None:
        async with served() as stub:
            await stub.RegisterJob(register())
            for iteration in range(4):
                await stub.SubmitBatch(submit(iteration, scripted_engine.HANG_WITH_PLAN))
            await stub.Plan(request())
            await is_refused(stub.GetPlan(pb.GetPlanRequest(job_id="job", iteration=3)), grpc.StatusCode.NOT_FOUND)
            await take(stub.StreamSchedules(stream()), 4)

    run(scenario())


def test_too_many_calls_are_exhausted() -> None:
    async def scenario() -> None:
        async with planner(max_queued_batches=1, max_budget_ms=LONG_MS) as server, client(server) as stub:
            await is_busy(server, busy=False)
            first = stub.Plan(request(scripted_engine.HANG, budget_ms=LONG_MS))
            await is_busy(server)
            error = await refusal(stub.Plan(request()))
            assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert retry_delay(error) > 0
            first.cancel()
            await is_busy(server, busy=False)
            await stub.Plan(request())

    run(scenario())
