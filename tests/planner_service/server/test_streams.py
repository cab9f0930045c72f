"""Shows in which order and when schedules are streamed, that the bytes never change, and that readers cost nothing."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from typing import TYPE_CHECKING

import grpc
import pytest
import scripted_engine
from dip.digests import plan_digest, streamed_digest
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
    run,
    served,
    stream,
    submit,
    take,
)
from waiting import PATIENCE_S

from planner_service.server.budgets import Budgets

if TYPE_CHECKING:
    from collections.abc import Callable

KIND = "/dip.planner.v1.PlannerService/StreamSchedules"


def raw_stream(channel: grpc.aio.Channel, request: pb.StreamSchedulesRequest) -> grpc.aio.UnaryStreamCall:
    """Open a stream whose responses are read as bytes."""
    call = channel.unary_stream(KIND, request_serializer=pb.StreamSchedulesRequest.SerializeToString)
    return call(request)


async def never_comes(call: grpc.aio.UnaryStreamCall, *, within_s: float = 0.1) -> bool:
    """Whether a stream stays silent; it is cancelled by asking."""
    try:
        await asyncio.wait_for(call.read(), within_s)
    except TimeoutError:
        return True
    return False


def test_every_rank_gets_its_part_of_the_same_plan() -> None:
    async def scenario() -> None:
        async with served() as stub:
            await stub.RegisterJob(register())
            await stub.SubmitBatch(submit(0))
            parts = [(await take(stub.StreamSchedules(stream(rank=rank)), 1))[0].schedule for rank in range(2)]
            plan = (await stub.GetPlan(pb.GetPlanRequest(job_id="job"))).plan
            assert [part.schedule for part in parts] == list(plan.ranks)
            assert {streamed_digest(part) for part in parts} == {plan_digest(plan, batch())} == {plan.digest}

    run(scenario())


def test_schedules_come_as_soon_as_they_are_planned_and_in_order() -> None:
    async def scenario() -> None:
        async with served(search_workers=2) as stub:
            await stub.RegisterJob(register())
            call = stub.StreamSchedules(stream())
            for iteration in range(12):
                await stub.SubmitBatch(submit(iteration, 300 + iteration))
            responses = await take(call, 12)
            assert [response.iteration for response in responses] == list(range(12))
            assert await never_comes(call)

    run(scenario())


def test_batch_that_was_never_submitted_is_passed_over() -> None:
    async def scenario() -> None:
        async with served() as stub:
            await stub.RegisterJob(register())
            call = stub.StreamSchedules(stream(3))
            await stub.SubmitBatch(submit(2))
            await stub.SubmitBatch(submit(5))
            assert [response.iteration for response in await take(call, 1)] == [5]
            await stub.SubmitBatch(submit(4))  # too late for the stream that is past it, not for one that is not
            assert [response.iteration for response in await take(stub.StreamSchedules(stream(3)), 2)] == [4, 5]
            await stub.SubmitBatch(submit(6))
            assert [response.iteration for response in await take(call, 1)] == [6]

    run(scenario())


def test_iteration_still_being_planned_goes_before_a_later_one_that_is_done(gate: Callable[[], None]) -> None:
    async def scenario() -> None:
        async with served(search_workers=2) as stub:
            await stub.RegisterJob(register(budget_ms=LONG_MS))
            call = stub.StreamSchedules(stream())
            await stub.SubmitBatch(submit(0, scripted_engine.WAIT_AT_GATE))
            await stub.SubmitBatch(submit(1))
            await take(stub.StreamSchedules(stream(1)), 1)  # the later one is done
            await asyncio.to_thread(gate)
            assert [response.iteration for response in await take(call, 2)] == [0, 1]

    run(scenario())


def test_solver_that_hangs_holds_up_later_iterations_for_its_limit_only(monkeypatch: pytest.MonkeyPatch) -> None:
    limits_s = iter([0.5, PATIENCE_S])  # the second is no limit of a search that does not hang
    monkeypatch.setattr(Budgets, "limit_s", lambda *_: next(limits_s))

    async def scenario() -> None:
        async with served(search_workers=2) as stub:
            await stub.RegisterJob(register())
            call = stub.StreamSchedules(stream())
            await stub.SubmitBatch(submit(0, scripted_engine.HANG))
            await stub.SubmitBatch(submit(1))
            first, second = await take(call, 2)
            assert (first.iteration, first.schedule.fallback) == (0, True)
            assert (second.iteration, second.schedule.fallback) == (1, False)

    run(scenario())


def test_iteration_that_was_run_without_its_plan_holds_up_nothing() -> None:
    async def scenario() -> None:
        async with served(search_workers=2) as stub:
            await stub.RegisterJob(register(budget_ms=LONG_MS))
            call = stub.StreamSchedules(stream())
            await stub.SubmitBatch(submit(0, scripted_engine.HANG))
            await stub.SubmitBatch(submit(1))
            await stub.ReportExecution(report(0, rank=1))
            first, second = await take(call, 2)
            assert first.unplanned_reason == (
                "it came too late: rank 1 had run iteration 0 before this one was planned"
            )
            assert second.HasField("schedule")
            await is_refused(stub.GetPlan(pb.GetPlanRequest(job_id="job")), grpc.StatusCode.NOT_FOUND)

    run(scenario())


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (scripted_engine.CANNOT_FIT, "rank 1 needs at least 20 bytes, memory_bytes allows it 10"),
        (scripted_engine.DIE_ALWAYS, "the search failed: the solver's process ended with signal 9"),
    ],
)
def test_reason_is_streamed_where_there_is_no_plan(script: int, reason: str) -> None:
    async def scenario() -> None:
        async with served() as stub:
            await stub.RegisterJob(register())
            await stub.SubmitBatch(submit(0, script))
            await stub.SubmitBatch(submit(1))
            for rank in range(2):
                first, second = await take(stub.StreamSchedules(stream(rank=rank)), 2)
                assert (first.iteration, first.unplanned_reason) == (0, reason)
                assert second.HasField("schedule")

    run(scenario())


def test_bytes_are_the_same_on_every_connection() -> None:
    async def scenario() -> None:
        async with planner() as server, client(server) as stub:
            await stub.RegisterJob(register())
            for iteration, script in enumerate([400, scripted_engine.DIE_WITH_PLAN, scripted_engine.CANNOT_FIT, 500]):
                await stub.SubmitBatch(submit(iteration, script))
            seen = []
            for _ in range(2):
                async with grpc.aio.insecure_channel(server.address) as channel:
                    call = raw_stream(channel, stream(rank=1))
                    seen.append([await call.read() for _ in range(4)])
                    resumed = raw_stream(channel, stream(2, rank=1))
                    assert [await resumed.read() for _ in range(2)] == seen[0][2:]
            assert seen[0] == seen[1]

    run(scenario())


def test_iterations_dropped_as_too_old_are_out_of_range() -> None:
    async def scenario() -> None:
        async with served(kept_iterations=2) as stub:
            await stub.RegisterJob(register())
            planned = stub.StreamSchedules(stream())
            for iteration in range(4):  # one after the other: what is kept goes by when outcomes are written
                await stub.SubmitBatch(submit(iteration))
                await take(planned, 1)
            for call in (
                stub.StreamSchedules(stream(1)).read(),
                stub.SubmitBatch(submit(1)),
                stub.ReportExecution(report(1)),
                stub.GetPlan(pb.GetPlanRequest(job_id="job", iteration=1)),
            ):
                await is_refused(call, grpc.StatusCode.OUT_OF_RANGE)
            assert [response.iteration for response in await take(stub.StreamSchedules(stream(2)), 2)] == [2, 3]

    run(scenario())


def test_slow_reader_is_told_to_connect_again_and_piles_up_nothing() -> None:
    async def scenario() -> None:
        # A small window: the server cannot write far ahead of a client that does not read.
        small = (("grpc.http2.lookahead_bytes", 1), ("grpc.http2.bdp_probe", 0))
        async with planner(kept_iterations=1) as server, client(server, *small) as stub, client(server) as other:
            await stub.RegisterJob(register(ranks=1, layers=16))
            slow = stub.StreamSchedules(stream())
            await slow.initial_metadata()
            reader = other.StreamSchedules(stream())
            for iteration in range(40):
                await other.SubmitBatch(submit(iteration))
                await take(reader, 1)
            received = []
            error = await refusal(_read_all(slow, received))
            assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "connect again" in str(error.details())
            assert len(received) < 40

    run(scenario())


def test_cancelled_streams_leave_memory_and_tasks_flat() -> None:
    async def scenario() -> None:
        async with planner() as server, client(server) as stub:
            await stub.RegisterJob(register())
            await stub.SubmitBatch(submit(0))
            await take(stub.StreamSchedules(stream()), 1)
            tasks = len(asyncio.all_tasks())
            await _cancel_streams(stub, 1_000, tasks)  # what so many at a time need once stays
            memory = _traced_bytes()
            await _cancel_streams(stub, 1_500, tasks)
            assert _traced_bytes() - memory < 2**20, "not so much as 700 bytes of each"
            # None of them is still counted, and one more is served as ever.
            assert len(await take(stub.StreamSchedules(stream()), 1)) == 1

    # Of what Python holds: a process that ran other tests before gives no measure of what it takes from the system.
    tracemalloc.start()
    try:
        run(scenario())
    finally:
        tracemalloc.stop()


def test_too_many_streams_are_refused_until_one_ends() -> None:
    async def scenario() -> None:
        async with served(max_streams=1) as stub:
            await stub.RegisterJob(register())
            first = stub.StreamSchedules(stream())
            await first.initial_metadata()
            error = await refusal(stub.StreamSchedules(stream()).read())
            assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            first.cancel()
            await stub.SubmitBatch(submit(0))
            while (await _first_code(stub.StreamSchedules(stream()))) == grpc.StatusCode.RESOURCE_EXHAUSTED:
                await asyncio.sleep(0.01)

    run(scenario())


async def _read_all(call: grpc.aio.UnaryStreamCall, received: list[object]) -> None:
    while True:
        received.append(await call.read())


async def _cancel_streams(stub: object, count: int, tasks: int) -> None:
    """Open and cancel so many streams, until there are no more tasks than before."""
    for _ in range(count // 50):
        calls = [stub.StreamSchedules(stream(1)) for _ in range(50)]  # type: ignore[attr-defined]
        for call in calls:
            await call.initial_metadata()
        for call in calls:
            call.cancel()
    while len(asyncio.all_tasks()) > tasks:
        await asyncio.sleep(0.01)


async def _first_code(call: grpc.aio.UnaryStreamCall) -> grpc.StatusCode:
    try:
        await call.read()
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def _traced_bytes() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
