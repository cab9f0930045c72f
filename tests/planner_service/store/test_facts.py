"""Shows what every store tells operators: what waits and since when, how far ahead a job is, what it takes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from store_cases import add, claimant, key, plan, planned, record

from planner_service.store import Claim, JobStanding, QueueState

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner_service.store.conftest import InStore

    from planner_service.store import PlanStore


def test_queue_counts_what_waits_and_what_is_claimed(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        assert await store.queue() == QueueState()
        for job_id in ("job", "other"):
            await store.put_job(record(job_id))
            await add(store, 0, job_id=job_id)
            await add(store, 1, job_id=job_id)
        state = await store.queue()
        assert (state.num_waiting, state.num_claimed) == (4, 0)
        claim = await store.claim(claimant(), [])
        assert isinstance(claim, Claim)
        state = await store.queue()
        assert (state.num_waiting, state.num_claimed) == (3, 1)
        await store.settle(claim.key, b"digest", planned())
        state = await store.queue()
        assert (state.num_waiting, state.num_claimed) == (3, 0)

    in_store(scenario)


def test_batch_whose_lease_has_ended_waits(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await store.put_job(record())
        await add(store, 0)
        await store.claim(claimant(lease_ms=1), [])
        while (state := await store.queue()).num_claimed:
            await asyncio.sleep(0.001)
        assert state.num_waiting == 1

    in_store(scenario)


def test_batch_that_was_given_back_waits(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await store.put_job(record())
        await add(store, 0)
        claim = await store.claim(claimant(), [])
        assert isinstance(claim, Claim)
        await store.release(claimant(), [claim])
        state = await store.queue()
        assert (state.num_waiting, state.num_claimed) == (1, 0)

    in_store(scenario)


def test_age_is_of_the_oldest_that_nobody_has(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await store.put_job(record())
        await add(store, 5)
        await _until(store, lambda state: state.oldest_age_ms >= 30)
        await add(store, 4)  # the nearer one, which is claimed first
        await store.claim(claimant(), [])
        assert (await store.queue()).oldest_age_ms >= 30
        claim = await store.claim(claimant("two"), [])
        assert isinstance(claim, Claim)
        assert claim.key.iteration == 5
        assert (await store.queue()).oldest_age_ms == 0

    in_store(scenario)


async def _until(store: PlanStore, condition: Callable[[QueueState], bool]) -> None:
    while not condition(await store.queue()):
        await asyncio.sleep(0.001)


def test_lead_is_of_the_replica_that_has_least(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await store.put_job(record())
        for iteration in (0, 1, 2):
            await plan(store, iteration)
        assert (await _standing(store)).lead is None
        await store.add_report(key(0), 0, b"report")
        assert (await _standing(store)).lead == 2
        await add(store, 7, replica=1)
        await store.add_report(key(7, replica=1), 0, b"report")
        assert (await _standing(store)).lead == 0
        await store.add_report(key(9, replica=1), 0, b"report")
        assert (await _standing(store)).lead == -2  # nobody submitted what it ran

    in_store(scenario)


def test_bytes_are_of_all_replicas(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await store.put_job(record())
        assert await _standing(store) == JobStanding(lead=None, plan_bytes=0, report_bytes=0)
        for replica in (0, 1):
            await add(store, 0, replica=replica)
            await store.settle(key(0, replica=replica), b"digest", planned())
            await store.add_report(key(0, replica=replica), 0, b"report")
        standing = await _standing(store)
        assert (standing.plan_bytes, standing.report_bytes) == (2 * planned().num_bytes, 2 * len(b"report"))

    in_store(scenario)


async def _standing(store: PlanStore) -> JobStanding:
    standing = await store.standing("job")
    assert standing is not None
    return standing


def test_job_that_is_over_stands_nowhere(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        assert await store.standing("job") is None
        written = await store.put_job(record())
        assert written is not None
        assert await store.standing("job") is not None
        await store.put_job(replace(written, closed=True))
        assert await store.standing("job") is None

    in_store(scenario)
