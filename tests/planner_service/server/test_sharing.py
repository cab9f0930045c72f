"""Shows how planners share a store: each batch planned once, by whoever is free, and by another when one is gone."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import grpc
import pytest
import scripted_engine
from dip.digests import streamed_digest
from dip.planner.v1 import planner_pb2 as pb
from grpc_health.v1 import health_pb2, health_pb2_grpc
from serving import LONG_MS, client, planner, refusal, register, report, run, stream, submit, take
from shared_stores import DEAD, SharedStore, SlowStore, clients, die_over, key, planners, queued

from planner_service.server import dispatcher
from planner_service.store import (
    Claim,
    StoreAwayError,
    StoreFullError,
)


def test_either_planner_takes_any_batch_and_any_stream() -> None:
    async def scenario() -> None:
        async with planners({}, {}) as (store, servers), clients(*servers) as (one, two):
            await one.RegisterJob(register())
            assert (await two.RegisterJob(register())).partition.chunks
            streams = [stub.StreamSchedules(stream(rank=rank)) for rank, stub in enumerate((one, two))]
            for iteration in range(6):
                await (one, two)[iteration % 2].SubmitBatch(submit(iteration))
            parts = [await take(stream, 6) for stream in streams]
            for first, second in zip(*parts, strict=True):
                assert first.iteration == second.iteration
                assert streamed_digest(first.schedule) == streamed_digest(second.schedule)
            assert sorted(found.iteration for found in store.settled) == list(range(6))

    run(scenario())


def test_what_one_planner_cannot_begin_the_other_does() -> None:
    async def scenario() -> None:
        async with planners({"plan_jobs": "own"}, {}) as (_, servers), clients(*servers) as (sidecar, shared):
            await sidecar.RegisterJob(register(budget_ms=LONG_MS))
            await sidecar.SubmitBatch(submit(0, scripted_engine.HANG))
            await sidecar.SubmitBatch(submit(1))
            (first,) = await take(sidecar.StreamSchedules(stream(1)), 1)
            assert first.iteration == 1
            assert first.HasField("schedule")
            assert (await shared.GetPlan(pb.GetPlanRequest(job_id="job", iteration=1))).plan.ranks

    run(scenario())


def test_planner_of_its_own_jobs_leaves_others_alone() -> None:
    async def scenario() -> None:
        async with planners({"plan_jobs": "own"}, {"plan_jobs": "own"}) as (store, servers), clients(*servers) as stubs:
            await stubs[0].RegisterJob(register())
            await stubs[1].RegisterJob(register("other"))
            await queued(store, 0)
            (answer,) = await take(stubs[0].StreamSchedules(stream()), 1)
            assert answer.HasField("schedule")

    run(scenario())


def test_jobs_that_end_at_another_planner_leave_little_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "_MOST_OWN_JOBS", 2)

    async def scenario() -> None:
        async with planners({"plan_jobs": "own", "max_jobs": 2}, {}) as (_, servers), clients(*servers) as stubs:
            for number in range(5):
                job = f"job-{number}"
                await stubs[1].RegisterJob(register(job))
                await stubs[0].SubmitBatch(submit(0, job_id=job))
                await take(stubs[0].StreamSchedules(stream(job_id=job)), 1)
                await stubs[1].CloseJob(pb.CloseJobRequest(job_id=job))
            servicer = servers[0]._servicer
            assert len(servicer._jobs._specs) == 2
            assert servicer._dispatcher._claimant().jobs == {"job-3", "job-4"}

    run(scenario())


def test_batch_of_a_dead_planner_is_planned_when_its_lease_ends() -> None:
    async def scenario() -> None:
        async with planners({}, {}) as (store, servers), clients(*servers) as (_, two):
            await two.RegisterJob(register())
            await queued(store, 0, claimant=replace(DEAD, lease_ms=50))
            (answer,) = await take(two.StreamSchedules(stream()), 1)
            assert answer.HasField("schedule")
            assert not answer.schedule.fallback

    run(scenario())


def test_batch_that_planners_end_over_gets_the_fixed_schedule_and_then_a_reason() -> None:
    async def scenario() -> None:
        store = SharedStore()
        async with planner(store=store) as server, client(server) as stub:
            await stub.RegisterJob(register())
        for iteration, times in ((0, 3), (1, 6)):
            await queued(store, iteration)
            await die_over(store, iteration, times)
            async with planner(store=store) as server, client(server) as stub:
                (answer,) = await take(stub.StreamSchedules(stream(iteration)), 1)
                if times == 3:
                    assert answer.schedule.fallback
                    kept = await stub.GetPlan(pb.GetPlanRequest(job_id="job"))
                    assert kept.plan.search.steps[-1].engine == "interrupted: 3 planners ended while they planned it"
                else:
                    assert answer.unplanned_reason == "6 planners ended while they planned it"

    run(scenario())


def test_planner_that_stops_gives_its_batches_to_the_other_at_once() -> None:
    async def scenario() -> None:
        store = SharedStore()
        async with planner(store=store) as first, client(first) as one:
            await one.RegisterJob(register(budget_ms=LONG_MS))
            await one.SubmitBatch(submit(0, scripted_engine.HANG_WITH_PLAN))
            await one.SubmitBatch(submit(1))
            await first.drain()
            assert store.released.is_set()
            assert store.settled == []
            found = await store.claim(replace(DEAD, name="other"), [])
            assert isinstance(found, Claim)
            assert (found.key, found.tries) == (key(0), 0)

    run(scenario())


def test_batch_that_is_being_claimed_while_the_planner_stops_is_given_back_at_once() -> None:
    async def scenario() -> None:
        store = SlowStore()
        async with planner(store=store) as server, client(server) as stub:
            await stub.RegisterJob(register(budget_ms=LONG_MS))
            store.slow = True
            while not server.idle_workers:
                await asyncio.sleep(0.01)
            call = stub.SubmitBatch(submit(0, scripted_engine.HANG))
            await store.claimed.wait()
            draining = asyncio.create_task(server.drain())
            await asyncio.sleep(0.1)
            store.answer.set()
            await asyncio.gather(draining, call)
            found = await store.claim(DEAD, [])
            assert isinstance(found, Claim)
            assert (found.key, found.tries) == (key(0), 0)

    run(scenario())


def test_client_that_leaves_while_its_batch_is_claimed_costs_no_time() -> None:
    async def scenario() -> None:
        store = SlowStore()
        async with planner(store=store) as server, client(server) as stub:
            await stub.RegisterJob(register())
            while not server.idle_workers:
                await asyncio.sleep(0.01)
            store.slow = True
            call = stub.SubmitBatch(submit(0))
            await store.claimed.wait()
            call.cancel()
            await asyncio.sleep(0.2)  # for the planner to hear of it
            store.answer.set()
            (answer,) = await take(stub.StreamSchedules(stream()), 1)
            assert answer.HasField("schedule")

    run(scenario())


def test_planner_that_lost_a_claim_takes_it_back_when_the_other_dies_over_it() -> None:
    async def scenario() -> None:
        store = SlowStore()
        async with planner(store=store, search_workers=2, lease_ms=300) as server, client(server) as stub:
            await stub.RegisterJob(register(budget_ms=LONG_MS))
            while server.idle_workers < 2:
                await asyncio.sleep(0.01)
            store.renewing.clear()
            await stub.SubmitBatch(submit(0, scripted_engine.HANG))
            while not isinstance(await store.claim(replace(DEAD, lease_ms=500), []), Claim):
                await asyncio.sleep(0.01)
            store.taken.clear()
            store.renewing.set()
            while not store.taken:
                await asyncio.sleep(0.01)
            assert (store.taken[0].key, store.taken[0].tries) == (key(0), 2)

    run(scenario())


@pytest.mark.parametrize("call", ["SubmitBatch", "StreamSchedules", "ReportExecution"])
def test_attempt_that_the_store_lost_during_a_call_is_to_be_registered_again(call: str) -> None:
    async def scenario() -> None:
        store = SlowStore()
        async with planner(store=store) as server, client(server) as stub:
            await stub.RegisterJob(register())
            store.forgets = True
            request = {"SubmitBatch": submit(0), "StreamSchedules": stream(), "ReportExecution": report(0)}[call]
            asked = getattr(stub, call)(request)
            error = await refusal(asked.read() if call == "StreamSchedules" else asked)
            assert error.code() == grpc.StatusCode.NOT_FOUND, error.details()

    run(scenario())


def test_batch_and_outcome_wait_for_a_store_that_is_away() -> None:
    """One failure as its job is looked up, another as the outcome is written: neither costs the batch a try."""

    async def scenario() -> None:
        async with planners({}) as (store, servers), clients(*servers) as (stub,):
            await stub.RegisterJob(register())
            await queued(store, 0)
            for method in ("job", "settle"):
                store.failing = {method: StoreAwayError("away")}
                while method not in store.failed:
                    await asyncio.sleep(0.001)
            store.failing = {}
            (answer,) = await take(stub.StreamSchedules(stream()), 1)
            assert answer.HasField("schedule")
            assert not answer.schedule.fallback

    run(scenario())


def test_calls_are_unavailable_while_the_store_is_away() -> None:
    async def scenario() -> None:
        async with planners({}) as (store, servers), clients(*servers) as (stub,):
            await stub.RegisterJob(register())
            store.failing = {"add_batch": StoreAwayError("away")}
            error = await refusal(stub.SubmitBatch(submit(1)))
            assert error.code() == grpc.StatusCode.UNAVAILABLE
            assert "away" in str(error.details())

    run(scenario())


def test_full_store_refuses_batches_and_says_when_to_come_again() -> None:
    async def scenario() -> None:
        async with planners({}) as (store, servers), clients(*servers) as (stub,):
            await stub.RegisterJob(register())
            store.failing = {"add_batch": StoreFullError("no room")}
            error = await refusal(stub.SubmitBatch(submit(1)))
            assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "no room" in str(error.details())

    run(scenario())


def test_store_that_lost_everything_ends_streams_and_gets_the_same_plan_again() -> None:
    async def scenario() -> None:
        async with planners({}) as (store, servers), clients(*servers) as (stub,):
            partition = (await stub.RegisterJob(register())).partition
            open_stream = stub.StreamSchedules(stream())
            await stub.SubmitBatch(submit(0))
            before = await open_stream.read()
            store.lose_everything()
            error = await refusal(open_stream.read())
            assert error.code() == grpc.StatusCode.UNAVAILABLE
            assert (await refusal(stub.SubmitBatch(submit(0)))).code() == grpc.StatusCode.NOT_FOUND
            again = register()
            again.partition.CopyFrom(partition)
            await stub.RegisterJob(again)
            await stub.SubmitBatch(submit(0))
            assert await take(stub.StreamSchedules(stream()), 1) == [before]

    run(scenario())


def test_service_is_ready_while_its_store_answers_and_the_process_serves_always() -> None:
    async def scenario() -> None:
        async with planners({}) as (store, servers), grpc.aio.insecure_channel(servers[0].health_address) as channel:
            watching = health_pb2_grpc.HealthStub(channel).Watch(
                health_pb2.HealthCheckRequest(service="dip.planner.v1.PlannerService")
            )
            serving = health_pb2.HealthCheckResponse.SERVING
            while (await watching.read()).status != serving:  # until there is a solver process
                pass
            assert store.on_available is not None
            for answers, status in ((False, health_pb2.HealthCheckResponse.NOT_SERVING), (True, serving)):
                store.on_available(answers)
                assert (await watching.read()).status == status
                process = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
                assert process.status == serving

    run(scenario())
