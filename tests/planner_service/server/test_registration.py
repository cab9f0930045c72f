"""Shows who decides about an attempt, and what becomes of those that come later or are superseded."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import grpc
import scripted_engine
from dip.partition import default_partition
from dip.planner.v1 import planner_pb2 as pb
from serving import LONG_MS, client, is_refused, planner, refusal, register, run, served, spec, stream, submit, take

from planner_service.server import jobs
from planner_service.settings import MAX_JOBS

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from dip.planner.v1 import planner_pb2_grpc as pb_grpc


def test_racing_ranks_get_one_answer_from_one_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "partitions"
    monkeypatch.setenv(scripted_engine.PARTITION_LOG, str(log))

    async def scenario() -> None:
        async with planner() as server, contextlib.AsyncExitStack() as stack:
            stubs = [await stack.enter_async_context(client(server)) for _ in range(4)]
            requests = [register() for _ in range(16)]
            for rank, request in enumerate(requests):  # each brings costs of its own
                request.spec.model.modules[0].layers[0].cost.points[0].forward_us += rank
            answers = await asyncio.gather(
                *(stubs[rank % 4].RegisterJob(request) for rank, request in enumerate(requests))
            )
            assert len({answer.SerializeToString(deterministic=True) for answer in answers}) == 1
            assert len(log.read_text().splitlines()) == 1
            kept = (await stubs[0].GetJob(pb.GetJobRequest(job_id="job"))).spec
            assert kept in [request.spec for request in requests]
            assert await stubs[0].RegisterJob(register()) == answers[0]
            assert len(log.read_text().splitlines()) == 1

    run(scenario())


def test_caller_that_gives_up_does_not_end_the_decision_for_others() -> None:
    async def scenario() -> None:
        async with served() as stub:
            impatient = stub.RegisterJob(register())
            patient = asyncio.ensure_future(stub.RegisterJob(register()))
            await asyncio.sleep(0.05)
            impatient.cancel()
            assert (await patient).partition.chunks

    run(scenario())


def test_partition_in_the_request_is_kept() -> None:
    async def scenario() -> None:
        async with served() as stub:
            request = register()
            loaded = scripted_engine.even_partition(request.spec)
            for chunk in loaded.chunks:
                chunk.rank = 1 - chunk.rank
            request.partition.CopyFrom(loaded)
            assert (await stub.RegisterJob(request)).partition == loaded
            assert (await stub.RegisterJob(register())).partition == loaded
            assert (await stub.GetJob(pb.GetJobRequest(job_id="job"))).partition == loaded

    run(scenario())


def test_other_model_under_a_taken_attempt_already_exists() -> None:
    async def scenario() -> None:
        async with served() as stub:
            await stub.RegisterJob(register(layers=4))
            for other in (register(layers=5), register(ranks=3), register(replicas=2)):
                await is_refused(stub.RegisterJob(other), grpc.StatusCode.ALREADY_EXISTS)

    run(scenario())


def test_higher_attempt_supersedes_and_drops_everything() -> None:
    async def scenario() -> None:
        async with served() as stub:
            await stub.RegisterJob(register(attempt=5, budget_ms=LONG_MS))
            old = stub.StreamSchedules(stream(attempt=5))
            await stub.SubmitBatch(submit(0, attempt=5))
            await take(old, 1)
            await stub.SubmitBatch(submit(1, scripted_engine.HANG, attempt=5))
            higher = register(attempt=6)
            higher.partition.CopyFrom(scripted_engine.even_partition(higher.spec))  # the only worker hangs
            await stub.RegisterJob(higher)
            assert await old.read() == grpc.aio.EOF
            assert await old.code() == grpc.StatusCode.OK
            for call in _calls(stub, attempt=5):
                await is_refused(call, grpc.StatusCode.FAILED_PRECONDITION)
            await is_refused(stub.GetPlan(pb.GetPlanRequest(job_id="job", iteration=0)), grpc.StatusCode.NOT_FOUND)
            # Another batch for the same iteration; the hanging solve of the old attempt is gone.
            await stub.SubmitBatch(submit(0, 777, attempt=6))
            (response,) = await take(stub.StreamSchedules(stream(attempt=6)), 1)
            assert response.schedule.schedule.actions

    run(scenario())


def test_attempt_that_is_not_registered_is_not_found() -> None:
    async def scenario() -> None:
        async with served() as stub:
            for call in _calls(stub, attempt=1):
                await is_refused(call, grpc.StatusCode.NOT_FOUND)
            await stub.RegisterJob(register(attempt=1))
            for call in _calls(stub, attempt=2):
                await is_refused(call, grpc.StatusCode.NOT_FOUND)

    run(scenario())


def test_closed_job_ends_its_streams_and_takes_nothing() -> None:
    async def scenario() -> None:
        async with served() as stub:
            await stub.RegisterJob(register(budget_ms=LONG_MS))
            call = stub.StreamSchedules(stream())
            await stub.SubmitBatch(submit(0))
            await take(call, 1)
            await stub.SubmitBatch(submit(1, scripted_engine.HANG))
            await stub.CloseJob(pb.CloseJobRequest(job_id="job"))
            await stub.CloseJob(pb.CloseJobRequest(job_id="job"))
            assert await call.read() == grpc.aio.EOF
            assert await call.code() == grpc.StatusCode.OK
            for refusing in _calls(stub, attempt=1):
                await is_refused(refusing, grpc.StatusCode.FAILED_PRECONDITION)
            (status,) = (await stub.ListJobs(pb.ListJobsRequest())).jobs
            assert status.closed
            assert (await stub.GetPlan(pb.GetPlanRequest(job_id="job", iteration=0))).plan.ranks

    run(scenario())


def test_closed_job_opens_again_with_a_higher_attempt() -> None:
    async def scenario() -> None:
        async with served() as stub:
            await stub.RegisterJob(register(attempt=1))
            await stub.CloseJob(pb.CloseJobRequest(job_id="job"))
            await stub.RegisterJob(register(attempt=2))
            await stub.SubmitBatch(submit(0, attempt=2))
            await take(stub.StreamSchedules(stream(attempt=2)), 1)

    run(scenario())


def test_unknown_job_cannot_be_closed() -> None:
    async def scenario() -> None:
        async with served() as stub:
            await is_refused(stub.CloseJob(pb.CloseJobRequest(job_id="job")), grpc.StatusCode.NOT_FOUND)
            await is_refused(stub.CloseJob(pb.CloseJobRequest()), grpc.StatusCode.INVALID_ARGUMENT)

    run(scenario())


def test_search_for_a_partition_that_hangs_leaves_the_default_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "PARTITION_BUDGET_MS", 200)

    async def scenario() -> None:
        async with served(solve_grace_ms=100) as stub:
            request = register()
            request.spec.model.modules[0].name = scripted_engine.HANG_PARTITION
            request.spec.model.modules[1].inputs[0] = scripted_engine.HANG_PARTITION
            answer = await stub.RegisterJob(request)
            assert answer.partition == default_partition(request.spec)

    run(scenario())


def test_workers_that_never_start_leave_registrations_unavailable() -> None:
    async def scenario() -> None:
        async with served("no_such_engine") as stub:
            await is_refused(stub.RegisterJob(register()), grpc.StatusCode.UNAVAILABLE)
            request = register()
            request.partition.CopyFrom(scripted_engine.even_partition(request.spec))
            assert (await stub.RegisterJob(request)).partition == request.partition

    run(scenario())


def test_too_many_open_jobs_are_refused_until_one_closes() -> None:
    async def scenario() -> None:
        async with served(max_jobs=2) as stub:
            for job_id in ("a", "b"):
                await stub.RegisterJob(register(job_id))
            error = await refusal(stub.RegisterJob(register("c")))
            assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert MAX_JOBS in str(error.details())
            await stub.RegisterJob(register("b", attempt=2))
            await stub.CloseJob(pb.CloseJobRequest(job_id="a"))
            await stub.RegisterJob(register("c"))

    run(scenario())


def test_jobs_that_wait_for_their_partition_are_open_jobs_whoever_still_waits() -> None:
    async def scenario() -> None:
        async with planner(max_jobs=1) as server, client(server) as stub:
            while not server.idle_workers:
                await asyncio.sleep(0.01)
            slow = register("slow")
            slow.spec.model.modules[0].name = scripted_engine.HANG_PARTITION
            slow.spec.model.modules[1].inputs[0] = scripted_engine.HANG_PARTITION
            while server.idle_workers:  # until it came in time, to be given up while the partition is made
                await is_refused(stub.RegisterJob(slow, timeout=0.5), grpc.StatusCode.DEADLINE_EXCEEDED)
            await is_refused(stub.RegisterJob(register("b")), grpc.StatusCode.RESOURCE_EXHAUSTED)
            slow.attempt += 1
            await is_refused(stub.RegisterJob(slow), grpc.StatusCode.RESOURCE_EXHAUSTED)

    run(scenario())


def test_jobs_are_described() -> None:
    async def scenario() -> None:
        async with served() as stub:
            await stub.RegisterJob(register("b", attempt=3))
            await stub.RegisterJob(register("a", attempt=4))
            listed = (await stub.ListJobs(pb.ListJobsRequest())).jobs
            assert [(job.job_id, job.attempt, job.last_planned_iteration, job.closed) for job in listed] == [
                ("a", 4, -1, False),
                ("b", 3, -1, False),
            ]
            described = await stub.GetJob(pb.GetJobRequest(job_id="b"))
            for status in (listed[1], described.status):
                status.ClearField("quiet_ms")  # time passes between the two
            assert (described.status, described.spec, described.effective_spec) == (listed[1], spec(), spec())

    run(scenario())


def _calls(stub: pb_grpc.PlannerServiceAsyncStub, attempt: int) -> list[object]:
    """One call of each method that needs a registered attempt."""
    return [
        stub.SubmitBatch(submit(3, attempt=attempt)),
        stub.StreamSchedules(stream(attempt=attempt)).read(),
        stub.ReportExecution(pb.ReportExecutionRequest(job_id="job", attempt=attempt, plan_digest=bytes(32))),
    ]
