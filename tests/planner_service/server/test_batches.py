"""Shows that a batch is planned once, whoever submits it how often, and what is kept of it for readers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
import pytest
import scripted_engine
from dip.planner.v1 import planner_pb2 as pb
from serving import (
    LONG_MS,
    batch,
    client,
    is_refused,
    planner,
    refusal,
    register,
    report,
    retry_delay,
    run,
    served,
    spec,
    stream,
    submit,
    take,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def test_same_batch_again_changes_nothing() -> None:
    async def scenario() -> None:
        async with served() as stub:
            await stub.RegisterJob(register())
            await asyncio.gather(*(stub.SubmitBatch(submit(0)) for _ in range(8)))
            before = await take(stub.StreamSchedules(stream()), 1)
            await stub.SubmitBatch(submit(0))
            assert await take(stub.StreamSchedules(stream()), 1) == before

    run(scenario())


@pytest.mark.parametrize("first_is_planned", [True, False])
def test_other_batch_under_the_same_key_already_exists(first_is_planned: bool) -> None:
    async def scenario() -> None:
        async with served() as stub:
            await stub.RegisterJob(register(replicas=2))
            await stub.SubmitBatch(submit(0, 400 if first_is_planned else scripted_engine.HANG))
            if first_is_planned:
                await take(stub.StreamSchedules(stream()), 1)
            await is_refused(stub.SubmitBatch(submit(0, 401)), grpc.StatusCode.ALREADY_EXISTS)
            await stub.SubmitBatch(submit(0, 401, replica=1))
            await stub.SubmitBatch(submit(1, 401))

    run(scenario())


def test_replicas_have_plans_of_their_own() -> None:
    async def scenario() -> None:
        async with served() as stub:
            await stub.RegisterJob(register(replicas=2))
            for replica in (0, 1):
                await stub.SubmitBatch(submit(0, 400 + 300 * replica, replica=replica))
            streamed = [(await take(stub.StreamSchedules(stream(replica=replica)), 1))[0] for replica in (0, 1)]
            assert streamed[0].schedule.makespan_us < streamed[1].schedule.makespan_us

    run(scenario())


def test_nearest_iteration_is_planned_first(gate: Callable[[], None]) -> None:
    async def scenario() -> None:
        async with served() as stub:
            await stub.RegisterJob(register(budget_ms=LONG_MS))
            await stub.SubmitBatch(submit(0, scripted_engine.WAIT_AT_GATE))  # the only worker is taken until then
            for iteration in (9, 7, 8):
                await stub.SubmitBatch(submit(iteration, scripted_engine.HANG if iteration > 7 else 400))
            await asyncio.to_thread(gate)
            await take(stub.StreamSchedules(stream(7)), 1)
            for iteration in (8, 9):
                await is_refused(
                    stub.GetPlan(pb.GetPlanRequest(job_id="job", iteration=iteration)), grpc.StatusCode.NOT_FOUND
                )

    run(scenario())


def test_too_many_waiting_batches_are_exhausted_with_a_time_to_come_back() -> None:
    async def scenario() -> None:
        async with served(max_queued_batches=2, search_workers=3) as stub:  # the two that hang keep theirs
            await stub.RegisterJob(register(budget_ms=LONG_MS))
            for iteration in range(2):
                await stub.SubmitBatch(submit(iteration, scripted_engine.HANG))
            error = await refusal(stub.SubmitBatch(submit(2)))
            assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert retry_delay(error) > 0
            await stub.SubmitBatch(submit(1, scripted_engine.HANG))  # known already, so that there is room for it
            await stub.ReportExecution(report(1))
            await stub.SubmitBatch(submit(2))
            await take(stub.StreamSchedules(stream(2)), 1)

    run(scenario())


def test_plan_is_read_with_its_request_and_the_first_report_of_each_rank() -> None:
    async def scenario() -> None:
        async with served() as stub:
            partition = (await stub.RegisterJob(register())).partition
            await stub.SubmitBatch(submit(0))
            await take(stub.StreamSchedules(stream()), 1)
            reports = [report(0, rank=rank, stalled_us=rank) for rank in (1, 0)]
            for one in reports:
                await stub.ReportExecution(one)
            await stub.ReportExecution(report(0, rank=1, stalled_us=99))
            answer = await stub.GetPlan(pb.GetPlanRequest(job_id="job"))
            assert answer.request == pb.PlanRequest(job=spec(), batch=batch(), partition=partition)
            assert answer.plan.partition == partition
            assert list(answer.reports) == [reports[1], reports[0]]
            (status,) = (await stub.ListJobs(pb.ListJobsRequest())).jobs
            assert (status.last_planned_iteration, status.last_reported_iteration) == (0, 0)

    run(scenario())


def test_interrupted_search_says_so_in_its_report() -> None:
    async def scenario() -> None:
        async with served() as stub:
            await stub.RegisterJob(register())
            await stub.SubmitBatch(submit(0, scripted_engine.DIE_WITH_PLAN))
            (streamed,) = await take(stub.StreamSchedules(stream()), 1)
            answer = await stub.GetPlan(pb.GetPlanRequest(job_id="job"))
            steps = answer.plan.search.steps
            assert [step.engine for step in steps] == [
                "scripted",
                "interrupted: the solver's process ended with signal 9",
            ]
            assert answer.request.batch == batch(scripted_engine.DIE_WITH_PLAN)
            assert streamed.schedule.schedule == answer.plan.ranks[0]

    run(scenario())


def test_client_that_leaves_after_submitting_still_gets_its_plan() -> None:
    async def scenario() -> None:
        async with planner() as server:
            async with client(server) as stub:
                await stub.RegisterJob(register())
                calls = [stub.SubmitBatch(submit(iteration)) for iteration in range(4)]
                await calls[0]
                for call in calls[1:]:
                    call.cancel()
            async with client(server) as stub:
                for iteration in range(4):
                    await stub.SubmitBatch(submit(iteration))
                assert [one.iteration for one in await take(stub.StreamSchedules(stream()), 4)] == [0, 1, 2, 3]

    run(scenario())
