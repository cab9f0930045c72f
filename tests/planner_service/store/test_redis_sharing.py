"""Shows that planners on one Redis share out its work, hear of each other's changes, and open few connections."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from redis_cases import empty, needs_redis, redis_store
from serving import run
from store_cases import add, claimant, key, plan, planned, record

from benchmarks.redis_server import RedisServer
from planner_service.store import Answer, Claim, Claimant, Wait

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner_service.store import PlanStore


pytestmark = needs_redis


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """Start one server for all tests."""
    with RedisServer() as started:
        yield started


async def take(store: PlanStore, who: Claimant) -> Claim:
    claim = await store.claim(who, [])
    assert isinstance(claim, Claim)
    return claim


def test_many_claims_at_once_share_out_each_batch_once(server: RedisServer) -> None:
    async def scenario() -> None:
        empty(server)
        async with redis_store(server) as one, redis_store(server) as two:
            for job_id in ("a", "b"):
                await one.put_job(record(job_id))
            await asyncio.gather(
                *(add(one, number // 4, job_id="ab"[number % 2], replica=number // 2 % 2) for number in range(80))
            )

            async def work(store: PlanStore, name: str) -> list[Claim]:
                done: list[Claim] = []
                while isinstance(claim := await store.claim(claimant(name), []), Claim):
                    assert await store.settle(claim.key, claim.digest, planned())
                    done.append(claim)
                return done

            workers = [work(store, f"{store is one} {number}") for store in (one, two) for number in range(4)]
            done = [claim for claims in await asyncio.gather(*workers) for claim in claims]
            assert len({claim.key for claim in done}) == len(done) == 80
            assert {claim.tries for claim in done} == {0}

    run(scenario())


def test_what_one_writes_the_other_hears_of_and_reads(server: RedisServer) -> None:
    async def scenario() -> None:
        empty(server)
        async with redis_store(server) as one, redis_store(server) as two:
            with two.watch(key(0).replica) as watch, two.watch_queue() as queue:
                await one.put_job(record())
                await watch.changed()
                assert await two.job("job") == record(version=1)
                await add(one, 0)
                await queue.changed()
                claim = await take(two, claimant("two"))
                with one.watch(key(0).replica) as submitter:
                    assert await two.settle(claim.key, claim.digest, planned("of two"))
                    await submitter.changed()
                assert await one.next_answer(key(0).replica, 0, 0) == Answer(iteration=0, response=b"of two")
                await watch.changed()
                await one.put_job(replace(record(version=1), closed=True))
                await watch.changed()
            closed = await two.job("job")
            assert closed is not None
            assert (closed.closed, closed.version) == (True, 2)
            assert [job.closed for job in await two.jobs()] == [True]

    run(scenario())


def test_batches_of_a_planner_that_is_gone_are_taken_over(server: RedisServer) -> None:
    async def scenario() -> None:
        empty(server)
        async with redis_store(server) as lives:
            async with redis_store(server) as dies:
                await dies.put_job(record())
                await add(dies, 0)
                await add(dies, 1)
                claim = await take(dies, claimant("dies", lease_ms=600_000))
            assert (await take(lives, claimant("lives"))).key == key(1)
            wait = await lives.claim(claimant("third"), [])
            assert isinstance(wait, Wait)
            assert wait.lease_ends_ms is not None
            assert 0 < wait.lease_ends_ms <= 600_000
            await lives.renew(claimant("dies", lease_ms=1), [claim])  # as if most of it had passed
            while not isinstance(taken := await lives.claim(claimant("third"), []), Claim):
                await asyncio.sleep(0.001)
            assert (taken.key, taken.tries) == (key(0), 1)

    run(scenario())


def test_leases_of_others_are_as_long_as_they_said(server: RedisServer) -> None:
    async def scenario() -> None:
        empty(server)
        async with redis_store(server) as store:
            await store.put_job(record())
            await add(store, 0)
            await take(store, claimant("patient", lease_ms=600_000))
            await store.claim(claimant("hasty", lease_ms=1), [])
            wait = await store.claim(claimant("hasty", lease_ms=1), [])
            assert isinstance(wait, Wait)
            assert wait.lease_ends_ms is not None
            assert wait.lease_ends_ms > 300_000

    run(scenario())


def test_claims_tell_how_many_solver_processes_there_are(server: RedisServer) -> None:
    async def scenario() -> None:
        empty(server)
        big, small = Claimant(name="big", lease_ms=600_000, workers=8), claimant("small")
        own = Claimant(name="own", lease_ms=600_000, workers=5, jobs=frozenset({"job"}))
        async with redis_store(server) as store:
            await store.put_job(record())
            for iteration in range(5):
                await add(store, iteration)
            await store.renew(big, [])
            assert (await take(store, small)).workers == 10
            assert (await take(store, own)).workers == 15
            assert (await take(store, big)).workers == 10
            await store.release(big, [])
            assert (await take(store, claimant("third"))).workers == 4
            await store.renew(replace(big, lease_ms=0), [])
            added = await store.add_batch(key(9), digest=b"digest", batch=b"", limit=9, claimant=small)
            assert added.claim is not None
            assert added.claim.workers == 4

    run(scenario())


def test_planners_leave_no_consumers_behind(server: RedisServer) -> None:
    async def scenario() -> None:
        empty(server)
        async with redis_store(server) as store:
            await store.put_job(record())
            await add(store, 0)
            for number in range(10):
                who = claimant(f"start {number}")
                await store.release(who, [await take(store, who)])
            with server.client() as client:
                consumers = client.xinfo_consumers("dip:1:job:job:queue", "planners")
                assert [consumer["name"] for consumer in consumers] == [b"waiting"]

    run(scenario())


def test_a_thousand_questions_at_once_take_few_connections(server: RedisServer) -> None:
    async def scenario() -> None:
        empty(server)
        async with redis_store(server) as store:
            await store.put_job(record())
            await plan(store, 0)
            entries = await asyncio.gather(*(store.entry(key(0)) for _ in range(1_000)))
            assert {entry.outcome for entry in entries if entry} == {planned("plan 0")}
            with server.client() as client:
                assert client.info("clients")["connected_clients"] <= 20

    run(scenario())


def test_unchanged_record_is_not_sent_again(server: RedisServer) -> None:
    async def scenario() -> None:
        empty(server)
        spec = bytes(1_000_000)
        async with redis_store(server) as one, redis_store(server) as two:
            await one.put_job(record(spec=spec))
            assert await two.job("job") == record(spec=spec, version=1)
            with server.client() as client:
                before = client.info("stats")["total_net_output_bytes"]
                for _ in range(20):
                    assert await two.job("job") == record(spec=spec, version=1)
                    assert await two.jobs() == [record(spec=spec, version=1)]
                assert client.info("stats")["total_net_output_bytes"] - before < len(spec)
            await one.put_job(record(version=1, spec=b"changed"))
            assert await two.job("job") == record(spec=b"changed", version=2)

    run(scenario())
