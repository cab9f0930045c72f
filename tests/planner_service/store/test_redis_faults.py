"""Shows that a Redis that is killed, hangs or is no primary costs no more than it has to."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, TypeVar
from unittest.mock import patch

import pytest
from redis_cases import NotedStore, empty, needs_redis, nothing, redis_store, until
from serving import run
from store_cases import add, claimant, key, plan, planned, record

from benchmarks.redis_server import RedisServer, server_programs
from planner_service.store import Answer, Claim, StoreAwayError, Wait

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from planner_service.store.redis_scripts import Script

T = TypeVar("T")

pytestmark = needs_redis

SHORT_S = 1.0


class Lost:
    """Counts how often a store said that it may have lost what it held."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> None:
        self.times += 1


@pytest.fixture(params=server_programs())
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """Start each kind of server in turn, anew for each test."""
    with RedisServer(program=server_programs()[request.param]) as started:
        yield started


@pytest.fixture
def fresh() -> Iterator[RedisServer]:
    """Start one server, anew for each test."""
    with RedisServer() as started:
        yield started


@pytest.fixture(scope="module")
def steady() -> Iterator[RedisServer]:
    """Start one server for the tests that leave it as it is."""
    with RedisServer() as started:
        yield started


async def in_the_end(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask until there is an answer: one that is so soon impatient may find a busy machine's server away, too."""
    while True:
        try:
            return await ask()
        except StoreAwayError:
            continue


def test_what_a_killed_server_kept_is_there_when_it_is_back(tmp_path: Path) -> None:
    async def scenario(server: RedisServer) -> None:
        lost = Lost()
        async with redis_store(server, on_lost=lost) as store:
            await store.put_job(record())
            await plan(store, 0)
            await add(store, 1)
            with store.watch(key(0).replica) as watch, store.watch_queue() as queue:
                server.kill()
                with pytest.raises(StoreAwayError):
                    await store.job("job")
                assert not store.available
                server.start()
                await watch.changed()
                await queue.changed()
            await until(lambda: (lost.times, store.available) == (1, True))
            assert await store.next_answer(key(0).replica, 0, 0) == Answer(iteration=0, response=b"plan 0")
            claim = await store.claim(claimant(), [])
            assert isinstance(claim, Claim)
            assert await store.settle(claim.key, claim.digest, planned())

    with RedisServer(tmp_path, appends=True) as started:
        run(scenario(started))


def test_server_that_lost_its_data_serves_anew(server: RedisServer) -> None:
    async def scenario() -> None:
        lost = Lost()
        async with redis_store(server, on_lost=lost) as store:
            await store.put_job(record(spec=b"before"))
            await add(store, 1)
            held = await store.claim(claimant(), [])
            assert isinstance(held, Claim)
            server.kill()
            server.start()
            await until(lambda: lost.times == 1)
            assert await store.job("job") is None
            assert list(await store.renew(claimant(), [held])) == [held]
            assert await store.put_job(record(spec=b"after")) == record(spec=b"after", version=1)
            assert await store.job("job") == record(spec=b"after", version=1)
            await add(store, 2)
            claim = await store.claim(claimant(), [])
            assert isinstance(claim, Claim)
            assert claim.key == key(2)

    run(scenario())


def test_hanging_server_is_given_up_in_time_and_taken_up_again(fresh: RedisServer) -> None:
    async def scenario() -> None:
        lost = Lost()
        async with redis_store(fresh, on_lost=lost, timeout_s=SHORT_S) as store:
            await in_the_end(lambda: store.put_job(record()))
            fresh.send(signal.SIGSTOP)
            asked = [store.job("job") for _ in range(100)]  # more than there are connections
            answers = await asyncio.gather(*asked, return_exceptions=True)
            assert {type(answer) for answer in answers} == {StoreAwayError}
            assert not store.available
            with store.watch(key(0).replica) as watch:
                fresh.send(signal.SIGCONT)
                await watch.changed()
            await until(lambda: store.available)
            assert await in_the_end(lambda: store.job("job")) is not None
            assert lost.times == 0

    run(scenario())


def test_server_that_hangs_unasked_is_noticed(fresh: RedisServer) -> None:
    async def scenario() -> None:
        async with redis_store(fresh, timeout_s=SHORT_S) as store:
            fresh.send(signal.SIGSTOP)
            await until(lambda: not store.available)
            fresh.send(signal.SIGCONT)
            await until(lambda: store.available)

    run(scenario())


def test_server_that_falls_silent_while_a_planner_starts_is_taken_up_again(fresh: RedisServer) -> None:
    async def scenario() -> None:
        store = NotedStore(fresh.url, timeout_s=SHORT_S)
        run_script = store._client.run

        async def stop_and_run(script: Script, *arguments: bytes | str | int) -> object:
            fresh.send(signal.SIGSTOP)
            return await run_script(script, *arguments)

        with patch.object(store._client, "run", stop_and_run):
            await store.start(nothing, store.note)
        try:
            fresh.send(signal.SIGCONT)
            await until(lambda: store.available)
            assert await in_the_end(store.jobs) == []
        finally:
            await store.close()

    run(scenario())


def test_server_may_come_after_the_planner() -> None:
    async def scenario() -> None:
        lost = Lost()
        server = RedisServer()
        try:
            async with redis_store(server, on_lost=lost) as store:
                assert not store.available
                with pytest.raises(StoreAwayError, match=f"redis://127.0.0.1:{server.port}/0"):
                    await store.jobs()
                server.start()
                await until(lambda: store.available)
                assert await store.put_job(record()) is not None
                assert lost.times == 0
        finally:
            server.close()

    run(scenario())


def test_replica_is_no_store_until_it_is_the_primary(fresh: RedisServer) -> None:
    async def scenario() -> None:
        async with redis_store(fresh) as store:
            await store.put_job(record())
            with fresh.client() as client:
                client.replicaof("127.0.0.1", "1")
                with pytest.raises(StoreAwayError, match="read only replica"):
                    await store.put_job(record(version=1, attempt=2))
                await until(lambda: not store.available)
                client.replicaof("NO", "ONE")
            await until(lambda: store.available)
            assert await store.put_job(record(version=1, attempt=2)) is not None

    run(scenario())


def test_cancelled_callers_leave_no_answers_to_others(steady: RedisServer) -> None:
    async def scenario() -> None:
        empty(steady)
        async with redis_store(steady) as store:
            names = [f"job {number}" for number in range(20)]
            for name in names:
                await store.put_job(record(name, spec=name.encode()))
            store._records._kept.clear()  # so that each answer has to bring its record

            async def read(name: str) -> None:
                found = await store.job(name)
                assert found == record(name, version=1, spec=name.encode())

            for round_ in range(20):
                asked = [asyncio.create_task(read(name)) for name in names]
                for _ in range(round_):
                    await asyncio.sleep(0)
                for task in asked[round_ % 2 :: 2]:
                    task.cancel()
                ended = await asyncio.gather(*asked, return_exceptions=True)
                assert {type(one) for one in ended} <= {type(None), asyncio.CancelledError}
                await asyncio.gather(*map(read, names))

    run(scenario())


def test_cancelled_write_is_written(steady: RedisServer) -> None:
    async def scenario() -> None:
        empty(steady)
        async with redis_store(steady) as store:
            writing = asyncio.create_task(store.put_job(record()))
            await asyncio.sleep(0)
            writing.cancel()
            await asyncio.wait([writing])
        async with redis_store(steady) as store:
            assert await store.job("job") == record(version=1)

    run(scenario())


def test_lost_connections_are_made_again_unnoticed(steady: RedisServer) -> None:
    async def scenario() -> None:
        empty(steady)
        lost = Lost()
        async with redis_store(steady, on_lost=lost) as store:
            await asyncio.gather(*(store.put_job(record(str(number))) for number in range(40)))
            for _ in range(3):
                with steady.client() as client, store.watch(key(0, job_id="0").replica) as watch:
                    client.client_kill_filter(_type="normal", skipme=True)
                    assert len(await store.jobs()) == 40
                    client.client_kill_filter(_type="pubsub")
                    await watch.changed()
            assert lost.times == 0

    run(scenario())


def test_turns_that_were_deleted_are_made_again_with_the_next_batch(steady: RedisServer) -> None:
    async def scenario() -> None:
        empty(steady)
        async with redis_store(steady) as store:
            await store.put_job(record())
            await add(store, 0)
            with steady.client() as client:
                client.delete("dip:1:turns", "dip:1:counter")
            await add(store, 1)
            claims = [await store.claim(claimant(str(number)), []) for number in range(2)]
            assert [one.key.iteration for one in claims if isinstance(one, Claim)] == [0, 1]

    run(scenario())


def test_forgotten_scripts_and_groups_are_made_again(steady: RedisServer) -> None:
    async def scenario() -> None:
        empty(steady)
        async with redis_store(steady) as store:
            await store.put_job(record())
            for iteration in (0, 1):
                await add(store, iteration)
            assert isinstance(await store.claim(claimant("before"), []), Claim)
            with steady.client() as client:
                client.script_flush()
                client.xgroup_destroy("dip:1:job:job:queue", "planners")
            claims = [await store.claim(claimant(str(number)), []) for number in range(3)]
            assert [one.key.iteration for one in claims if isinstance(one, Claim)] == [0, 1]
            assert isinstance(claims[2], Wait)

    run(scenario())
