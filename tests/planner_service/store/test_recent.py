"""Shows what a store tells of the newest iterations without reading plans, and how many of them fell back."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from store_cases import add, key, plan, planned, record, unplanned

from planner_service.store import AttemptOverError, PlanStore, RecentIteration
from planner_service.store.records import RECENT_REPORTED

if TYPE_CHECKING:
    from store.conftest import InStore

SUMMARY = replace(planned(), summary=b"plan in short")


async def iterations(store: PlanStore, *, count: int = 9, last: int | None = None, replica: int = 0) -> list[int]:
    return [told.iteration for told in await store.recent("job", 1, replicas=[replica], count=count, last=last)]


def test_each_state_is_told(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await store.put_job(record())
        await store.add_report(key(1), 1, b"report", summary=b"one,", fell_back=True)
        await store.add_report(key(1), 0, b"report", summary=b"zero")
        await plan(store, 2, SUMMARY)
        await plan(store, 3, unplanned())
        await add(store, 4)
        assert await store.recent("job", 1, replicas=[0], count=4) == [
            RecentIteration(replica=0, iteration=1, submitted=False, settled=False, reported=b"one,zero"),
            RecentIteration(replica=0, iteration=2, submitted=True, settled=True, summary=b"plan in short"),
            RecentIteration(replica=0, iteration=3, submitted=True, settled=True, unplanned_reason="no"),
            RecentIteration(replica=0, iteration=4, submitted=True, settled=False),
        ]

    in_store(scenario)


def test_the_newest_up_to_one_are_told(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await store.put_job(record())
        for iteration in (10, 2, 9, 100):
            await add(store, iteration)
        assert await iterations(store) == [2, 9, 10, 100]
        assert await iterations(store, count=2) == [10, 100]
        assert await iterations(store, last=10) == [2, 9, 10]
        assert await iterations(store, last=11, count=1) == [10]
        assert await iterations(store, last=1) == []
        assert await iterations(store, last=2**63 - 1, count=1) == [100]

    in_store(scenario)


def test_replicas_are_told_in_the_order_asked_for(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await store.put_job(replace(record(), replicas=80))
        for replica in range(80):
            await add(store, replica % 7, replica=replica)
        order = [79, 3, *range(10, 70)]
        told = await store.recent("job", 1, replicas=[*order, 999], count=5)
        assert [(one.replica, one.iteration) for one in told] == [(replica, replica % 7) for replica in order]

    in_store(scenario)


def test_a_second_report_of_a_rank_is_not_told(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await store.put_job(record())
        await store.add_report(key(0), 0, b"report", summary=b"first")
        assert not await store.add_report(key(0), 0, b"report", summary=b"second", fell_back=True)
        (told,) = await store.recent("job", 1, replicas=[0], count=1)
        assert told.reported == b"first"
        assert (await store.progress("job")).num_fell_back == 0

    in_store(scenario)


def test_what_is_forgotten_is_not_told(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await store.put_job(record())
        for iteration in range(8):
            await plan(store, iteration)
            await store.add_report(key(iteration), 0, b"report")
        assert await iterations(store) == [5, 6, 7]
        await store.put_job(record(attempt=2, version=1))
        assert await store.recent("job", 2, replicas=[0], count=9) == []
        with pytest.raises(AttemptOverError):
            await iterations(store)
        with pytest.raises(AttemptOverError):
            await store.recent("other", 1, replicas=[0], count=9)

    in_store(scenario)


def test_a_closed_job_is_told_of(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await store.put_job(record())
        await plan(store, 0, SUMMARY)
        await add(store, 1)
        await store.put_job(replace(record(version=1), closed=True))
        assert await iterations(store) == [0]
        assert (await store.progress("job")).num_waiting == 0

    in_store(scenario)


def test_batches_without_an_outcome_are_counted(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await store.put_job(replace(record(), replicas=2))
        for iteration, replica in ((0, 0), (1, 0), (0, 1)):
            await add(store, iteration, replica=replica)
        assert (await store.progress("job")).num_waiting == 3
        await store.settle(key(0, replica=1), b"digest", planned())
        await store.add_report(key(0), 0, b"report")
        assert (await store.progress("job")).num_waiting == 1
        assert (await store.progress("other")).num_waiting == 0

    in_store(scenario)


def test_silence_is_measured(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await store.put_job(record())
        quiet_ms = [(await store.progress("job")).quiet_ms]
        while quiet_ms[-1] < 50:
            quiet_ms.append((await store.progress("job")).quiet_ms)
            await asyncio.sleep(0)
        assert quiet_ms == sorted(quiet_ms)
        for write in (add(store, 0), store.add_report(key(0), 0, b"report"), store.put_job(record(version=1))):
            before_s = time.monotonic()
            await write
            quiet_s = (await store.progress("job")).quiet_ms / 1000
            assert quiet_s <= time.monotonic() - before_s + 0.025  # clocks of two processes

    in_store(scenario)


def test_iterations_that_fell_back_are_counted(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await store.put_job(replace(record(), replicas=2))
        await store.add_report(key(0), 0, b"report")
        await store.add_report(key(0), 1, b"report", fell_back=True)
        await store.add_report(key(1), 0, b"report", fell_back=True)
        await store.add_report(key(1, replica=1), 0, b"report", fell_back=False)
        await store.add_report(key(2), 0, b"report")
        progress = await store.progress("job")
        assert (progress.num_reported, progress.num_fell_back) == (3, 2)
        for iteration in range(3, RECENT_REPORTED + 1):
            await store.add_report(key(iteration), 0, b"report")
        progress = await store.progress("job")
        assert (progress.num_reported, progress.num_fell_back) == (RECENT_REPORTED, 1)
        await store.put_job(record(version=1, attempt=2))
        assert (await store.progress("job")).num_reported == 0

    in_store(scenario)


def test_summaries_count_as_kept_bytes(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await store.put_job(record())
        for iteration in range(3):
            await store.add_report(key(iteration), 0, b"", summary=b"x" * 100)
        assert await iterations(store) == [1, 2]  # a quarter of 1,000 bytes

    in_store(scenario)
