"""Shows that Redis holds the keys that docs/redis.md describes, none for ever, and none of what is forgotten."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from redis_cases import empty, keys_of, redis_store
from serving import run
from store_cases import add, claimant, claimed, key, planned, record, unplanned

from benchmarks.redis_server import RedisServer, server_programs
from planner_service.store import BatchKey, Claim

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner_service.store import PlanStore

DOCS = Path(__file__).parents[3] / "docs" / "redis.md"
IDLE_S = 1000
UNUSUAL = ("a:b", "*", "jobs", "", "é ü/../%3A", "\0\n", "x" * 500)


@pytest.fixture(scope="module", params=server_programs())
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """Start each kind of server in turn."""
    with RedisServer(program=server_programs()[request.param]) as started:
        yield started


def documented() -> list[re.Pattern[str]]:
    names = re.findall(r"^\| `(dip:[^`]+)` \|", DOCS.read_text(), flags=re.MULTILINE)
    parts = {re.escape("{job}"): r"[\w.~%-]*", re.escape("{replica}"): r"\d+"}
    patterns = []
    for name in names:
        pattern = re.escape(name)
        for part, allowed in parts.items():
            pattern = pattern.replace(part, allowed)
        patterns.append(re.compile(pattern))
    return patterns


async def use_all(store: PlanStore, job_id: str) -> None:
    """Do all that writes, and leave something of every kind."""
    await store.put_job(record(job_id))
    for replica in (0, 1):
        for iteration in range(6):
            await add(store, iteration, job_id=job_id, replica=replica)
        await store.settle(key(2, job_id=job_id, replica=replica), b"digest", replace(planned(), summary=b"few"))
        await store.settle(key(3, job_id=job_id, replica=replica), b"digest", unplanned())
        await store.add_report(key(1, job_id=job_id, replica=replica), 0, b"report", summary=b"few", fell_back=True)
    first = await store.claim(claimant(), [])
    assert isinstance(first, Claim)
    second = await store.claim(claimant(), [first])
    assert isinstance(second, Claim)
    await store.release(claimant(), [first])
    await store.renew(claimant(), [second])


def test_all_keys_are_documented_and_live_for_a_time(server: RedisServer) -> None:
    async def scenario() -> None:
        empty(server)
        async with redis_store(server, idle_job_s=IDLE_S) as store:
            for job_id in ("job", *UNUSUAL):
                await use_all(store, job_id)
            await store.put_job(replace(record("*", version=1), closed=True))
            patterns = documented()
            with keys_of(server) as keys:
                matched = {pattern for pattern in patterns for name in keys if pattern.fullmatch(name)}
                strangers = [name for name in keys if not any(pattern.fullmatch(name) for pattern in patterns)]
                assert (strangers, matched) == ([], set(patterns))
                assert [name for name, ms in keys.items() if not 0 < ms <= IDLE_S * 1000] == []

    run(scenario())


def test_unusual_job_ids_are_apart(server: RedisServer) -> None:
    async def scenario() -> None:
        empty(server)
        async with redis_store(server) as store:
            for job_id in UNUSUAL:
                await store.put_job(record(job_id, spec=job_id.encode()))
                await add(store, len(job_id), job_id=job_id)
            assert [job.job_id for job in await store.jobs()] == sorted(UNUSUAL)
            for job_id in UNUSUAL:
                assert await store.job(job_id) == record(job_id, spec=job_id.encode(), version=1)
                with store.watch(key(0, job_id=job_id).replica) as watch:
                    claim = await store.claim(claimant(jobs=frozenset({job_id})), [])
                    assert isinstance(claim, Claim)
                    assert claim.key == key(len(job_id), job_id=job_id)
                    await store.settle(claim.key, claim.digest, planned())
                    await watch.changed()

    run(scenario())


@pytest.mark.parametrize("ending", ["closed", "attempt"])
def test_nothing_is_left_of_what_is_over(server: RedisServer, ending: str) -> None:
    async def scenario() -> None:
        empty(server)
        async with redis_store(server, kept_closed_jobs=0) as store:
            await use_all(store, "job")
            if ending == "closed":
                await store.put_job(replace(record(version=1), closed=True))
            else:
                await store.put_job(record(version=1, attempt=2))
            with keys_of(server) as keys:
                lasting = {"dip:1:counter", "dip:1:planners"}
                assert set(keys) <= (lasting if ending == "closed" else lasting | {"dip:1:jobs", "dip:1:job:job"})

    run(scenario())


def test_closed_job_keeps_no_queue_and_no_batch(server: RedisServer) -> None:
    async def scenario() -> None:
        empty(server)
        async with redis_store(server) as store:
            await use_all(store, "job")
            await store.put_job(replace(record(version=1), closed=True))
        with server.client() as client:
            assert (
                client.exists(
                    "dip:1:job:job:queue", "dip:1:job:job:waiting", "dip:1:job:job:0:unsettled", "dip:1:turns"
                )
                == 0
            )
            fields = {name.decode().partition(":")[2] for name in client.hkeys("dip:1:job:job:0")}
            assert fields == {"", "digest", "ranks", "0", "1", "answer", "reason", "summary", "bytes"}

    run(scenario())


def test_iterations_beyond_those_kept_leave_nothing(server: RedisServer) -> None:
    async def scenario() -> None:
        empty(server)
        async with redis_store(server, kept_iterations=3) as store:
            await store.put_job(record())
            sizes = []
            for iteration in range(100, 140):
                await add(store, iteration)
                await add(store, iteration + 1_000)
                await store.settle(key(iteration), b"digest", replace(planned(), summary=b"few"))
                await store.add_report(key(iteration), 0, b"report", summary=b"few", fell_back=True)
                await store.settle(key(iteration + 1_000), b"other digest", planned())
                await store.put_job(record(version=iteration - 99))
                with server.client() as client:
                    held = client.hkeys("dip:1:job:job:0") + client.hkeys("dip:1:job:job:0:reports")
                    assert client.hlen("dip:1:job:job:fell_back") == min(32, iteration - 99)
                    sizes.append(len([name for name in held if not name.startswith(b"0000000000000001")]))
            assert sizes[-1] == sizes[10]

    run(scenario())


def let_pass(server: RedisServer, seconds: int) -> None:
    """Have all keys die as if so much time had passed."""
    with keys_of(server) as keys, server.client() as client:
        for name in keys:
            client.pexpireat(name, client.pexpiretime(name) - 1000 * seconds)


def test_idle_job_is_forgotten_whole(server: RedisServer) -> None:
    async def scenario() -> None:
        empty(server)
        async with redis_store(server, idle_job_s=IDLE_S) as store:
            await use_all(store, "idle")
            let_pass(server, IDLE_S - 1)
            while await store.job("idle") is not None:
                await asyncio.sleep(0.05)
            assert await store.jobs() == []
            await store.put_job(record("busy"))
            with keys_of(server) as keys:
                assert [name for name in keys if "idle" in name] == []
            with server.client() as client:
                assert client.smembers("dip:1:jobs") == {b"busy"}

    run(scenario())


def test_stray_entry_of_a_queue_is_passed_over(server: RedisServer) -> None:
    async def scenario() -> None:
        empty(server)
        async with redis_store(server) as store:
            await store.put_job(record())
            await add(store, 5)
            with server.client() as client:
                client.xadd("dip:1:job:job:queue", {"replica": "0"}, id="9999999999999-3")
                client.zadd("dip:1:job:job:waiting", {"00000000000000000003:9999999999999-3": 0})
            claim = await store.claim(claimant(), [])
            assert isinstance(claim, Claim)
            assert claim.key == BatchKey(replica=key(5).replica, iteration=5)
            with server.client() as client:
                assert client.xlen("dip:1:job:job:queue") == 1

    run(scenario())


@pytest.mark.parametrize("part", ["", ":queue", ":0", ":waiting"])
def test_job_that_lost_a_key_stands_in_no_other_jobs_way(server: RedisServer, part: str) -> None:
    async def scenario() -> None:
        empty(server)
        async with redis_store(server) as store:
            for job_id in ("gone", "whole"):
                await store.put_job(record(job_id))
                await add(store, 0, job_id=job_id)
                await add(store, 1, job_id=job_id)
            with server.client() as client:
                assert client.delete(f"dip:1:job:gone{part}") == 1
            whole = [one for one in [await claimed(store, claimant(str(number))) for number in range(5)] if one]
            assert [one for one in whole if one[0] == "whole"] == [("whole", 0), ("whole", 1)]

    run(scenario())
