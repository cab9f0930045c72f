"""Shows that a Redis tells of its queue whatever operators and older planners left in it, and of many jobs at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from redis_cases import empty, needs_redis, redis_store
from serving import run
from store_cases import add, claimant, record

from benchmarks.redis_server import RedisServer
from planner_service.store import QueueState

if TYPE_CHECKING:
    from collections.abc import Iterator

QUEUE = "dip:1:job:job:queue"

pytestmark = needs_redis


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as started:
        yield started


def test_without_its_group_nobody_holds_anything(server: RedisServer) -> None:
    async def scenario() -> None:
        async with redis_store(server) as store:
            await store.put_job(record())
            await add(store, 0)
            await store.claim(claimant(), [])
            with server.client() as client:
                client.xgroup_destroy(QUEUE, "planners")
            state = await store.queue()
            assert (state.num_waiting, state.num_claimed) == (1, 0)

    empty(server)
    run(scenario())


def test_entries_of_planners_that_did_not_write_when_have_no_age(server: RedisServer) -> None:
    async def scenario() -> None:
        async with redis_store(server) as store:
            await store.put_job(record())
            await add(store, 0)
            with server.client() as client:
                ((id_, _),) = client.xrange(QUEUE)
                client.xdel(QUEUE, id_)
                client.xadd(QUEUE, {"replica": 0}, id=f"9{id_.decode()}")
            assert await store.queue() == QueueState(num_waiting=1, num_claimed=0, oldest_age_ms=0)

    empty(server)
    run(scenario())


def test_all_jobs_are_counted(server: RedisServer) -> None:
    async def scenario() -> None:
        async with redis_store(server) as store:
            for number in range(20):
                await store.put_job(record(f"job-{number}"))
                for iteration in range(3):
                    await add(store, iteration, job_id=f"job-{number}")
            for number in range(5):
                await store.claim(claimant(f"planner {number}"), [])
            state = await store.queue()
            assert (state.num_waiting, state.num_claimed) == (55, 5)

    empty(server)
    run(scenario())
