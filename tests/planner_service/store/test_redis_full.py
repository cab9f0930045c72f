"""Shows that a Redis that is full, or may not write, takes nothing new and still gives what it has."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from redis_cases import needs_redis, redis_store, until
from serving import run
from store_cases import add, claimant, key, plan, planned, record
from waiting import PATIENCE_S

from benchmarks.redis_server import RedisServer, server_programs
from planner_service.store import (
    Answer,
    Claim,
    Outcome,
    PlanStore,
    StoreAwayError,
    StoreFullError,
    TooOldError,
    redis_client,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = needs_redis


@pytest.fixture(params=server_programs())
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """Start each kind of server in turn, anew for each test."""
    with RedisServer(program=server_programs()[request.param]) as started:
        yield started


async def fill(store: PlanStore, job_id: str, first: int = 0) -> int:
    """Add batches until there is no room; return the last iteration that there was room for."""
    for iteration in range(first, 1_000):
        try:
            where = key(iteration, job_id=job_id)
            await store.add_batch(where, digest=b"digest", batch=bytes(50_000), limit=10_000)
        except StoreFullError:
            return iteration - 1
    pytest.fail("there is room for everything")


def test_full_server_takes_nothing_new_and_ends_what_it_took(server: RedisServer) -> None:
    async def scenario() -> None:
        async with redis_store(server) as store:
            await store.put_job(record())
            for iteration in range(3):
                await add(store, iteration)
            with server.client() as client:
                client.config_set("maxmemory", 1)
            for refused in (store.put_job(record("other")), store.add_report(key(0), 0, b"report"), add(store, 3)):
                with pytest.raises(StoreFullError, match="maxmemory"):
                    await refused
            assert store.available
            claim = await store.claim(claimant(), [])
            assert isinstance(claim, Claim)
            assert list(await store.renew(claimant(), [claim])) == []
            await store.release(claimant(), [claim])
            assert await store.settle(claim.key, claim.digest, planned())
            assert await store.next_answer(key(0).replica, 0, 0) == Answer(iteration=0, response=b"plan")
            assert await store.put_job(record(attempt=2, version=1)) is not None
            assert await store.put_job(replace(record(attempt=2, version=2), closed=True)) is not None

    run(scenario())


def test_closing_a_job_makes_room_in_a_full_server() -> None:
    async def scenario(server: RedisServer) -> None:
        async with redis_store(server) as store:
            await store.put_job(record())
            room = await fill(store, "job")
            assert await store.put_job(replace(record(version=1), closed=True)) is not None
            with server.client() as client:  # a server takes its time to give room back
                await until(lambda: client.info("memory")["lazyfree_pending_objects"] == 0)
            assert await store.put_job(record("other")) is not None
            assert await fill(store, "other") >= room / 2

    with RedisServer(options={"maxmemory": "5mb"}) as started:
        run(scenario(started))


def test_what_was_run_gives_way_in_a_full_server() -> None:
    async def scenario(server: RedisServer) -> None:
        outcome = Outcome(responses=(bytes(100_000), bytes(100_000)), answer=b"answer")
        async with redis_store(server) as store:
            await store.put_job(record())
            for iteration in range(60):
                await store.add_batch(key(iteration), digest=b"digest", batch=bytes(50_000), limit=9)
                await store.settle(key(iteration), b"digest", outcome)
                assert await store.next_answer(key(0).replica, 0, iteration) is not None
                assert await store.add_report(key(iteration), 0, bytes(5_000))
            with pytest.raises(TooOldError):
                await store.entry(key(30))

    with RedisServer(options={"maxmemory": "5mb"}) as started:
        run(scenario(started))


def test_what_nobody_has_run_stays_in_a_full_server() -> None:
    async def scenario(server: RedisServer) -> None:
        async with redis_store(server) as store:
            await store.put_job(record())
            await plan(store, 0)
            room = await fill(store, "job", first=1)
            with server.client() as client:  # whatever its buffers give back by and by
                client.config_set("maxmemory", 1)
            with pytest.raises(StoreFullError):
                await store.add_report(key(0), 0, bytes(5_000))
            assert await store.next_answer(key(0).replica, 0, 0) == Answer(iteration=0, response=b"plan 0")
            assert await store.settle(key(1), b"digest", planned())
            assert [await store.entry(key(iteration)) is not None for iteration in (1, room)] == [True, True]

    with RedisServer(options={"maxmemory": "5mb"}) as started:
        run(scenario(started))


def test_server_that_may_not_write_still_gives_what_it_has(
    server: RedisServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_client, "_QUIET_S", PATIENCE_S)

    async def scenario() -> None:
        async with redis_store(server) as store:
            await store.put_job(record())
            await plan(store, 0)
            with server.client() as client:
                client.config_set("min-replicas-to-write", 1)
            for _ in range(3):
                with pytest.raises(StoreAwayError, match="NOREPLICAS"):
                    await add(store, 1)
            assert store.available
            assert await store.next_answer(key(0).replica, 0, 0) == Answer(iteration=0, response=b"plan 0")
            assert caplog.text.count("NOREPLICAS") == 1

    run(scenario())


def test_server_that_cannot_save_is_not_away() -> None:
    async def scenario(server: RedisServer) -> None:
        async with redis_store(server) as store:
            await store.put_job(record())
            shutil.rmtree(server.directory)
            with server.client() as client:
                client.bgsave()
                await until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err")
            with pytest.raises(StoreAwayError, match="MISCONF"):
                await add(store, 0)
            with store.watch(key(0).replica) as watch, pytest.raises(TimeoutError):
                await asyncio.wait_for(watch.changed(), 1.5)  # longer than it is asked after
            assert await store.job("job") is not None
            assert store.available

    with RedisServer(options={"save": "3600 1"}) as started:
        run(scenario(started))
