"""Shows that what waits of a job is bounded by bytes, counted truly whatever ends the wait, in every store."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from store_cases import claimant, key, planned, record, unplanned

from planner_service.store import PlanStore, QueueBytesError

if TYPE_CHECKING:
    from store.conftest import InStore

MOST_BYTES = 100


async def add(store: PlanStore, iteration: int, num_bytes: int, *, replica: int = 0, attempt: int = 1) -> None:
    where = key(iteration, replica=replica, attempt=attempt)
    await store.add_batch(where, digest=b"digest", batch=bytes(num_bytes), limit=9, limit_bytes=MOST_BYTES)


async def taken(store: PlanStore, *, attempt: int = 1) -> int:
    """Bytes that wait, as the store counts them: found by a batch that is too large beside any other."""
    with pytest.raises(QueueBytesError) as caught:
        await add(store, 99, MOST_BYTES, attempt=attempt)
    return caught.value.taken


def test_batches_of_all_replicas_share_what_a_job_may_have_waiting(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await store.put_job(record())
        await add(store, 0, 60)
        await add(store, 0, 40, replica=1)
        with pytest.raises(QueueBytesError) as caught:
            await add(store, 1, 1, replica=2)
        assert str(caught.value) == "batches of this job that wait for a plan take 100 of 100 bytes already"
        assert await store.entry(key(1, replica=2)) is None
        await store.put_job(record("other"))
        await store.add_batch(
            key(0, job_id="other"), digest=b"digest", batch=bytes(60), limit=9, limit_bytes=MOST_BYTES
        )

    in_store(scenario)


def test_batch_that_is_known_is_counted_once(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await store.put_job(record())
        for _ in range(3):
            await add(store, 0, 60)
        assert await taken(store) == 60

    in_store(scenario)


def test_batch_that_is_larger_than_the_limit_is_taken_alone(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await store.put_job(record())
        await add(store, 0, 3 * MOST_BYTES)
        assert await taken(store) == 3 * MOST_BYTES

    in_store(scenario)


def test_batches_that_are_claimed_still_count(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await store.put_job(record())
        await add(store, 0, 60)
        claim = await store.claim(claimant(), [])
        assert await taken(store) == 60
        await store.release(claimant(), [claim])
        assert await taken(store) == 60

    in_store(scenario)


@pytest.mark.parametrize("outcome", [planned(), unplanned()], ids=["planned", "unplanned"])
def test_outcome_makes_room(in_store: InStore, outcome: object) -> None:
    async def scenario(store: PlanStore) -> None:
        await store.put_job(record())
        await add(store, 0, 60)
        await add(store, 1, 30)
        assert await store.settle(key(0), b"digest", outcome)
        assert await taken(store) == 30
        assert not await store.settle(key(0), b"digest", outcome)
        assert await taken(store) == 30
        assert await store.settle(key(1), b"digest", outcome)
        await add(store, 2, MOST_BYTES)

    in_store(scenario)


def test_report_of_an_iteration_makes_room_and_late_batches_take_none(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await store.put_job(record())
        await add(store, 0, 50)
        await add(store, 2, 30)
        await store.add_report(key(1), 0, b"report")
        assert await taken(store) == 30
        await add(store, 1, 60)
        assert await taken(store) == 30

    in_store(scenario)


def test_dropped_iterations_make_room(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await store.put_job(record())
        await add(store, 0, 60)
        for iteration in range(1, 6):  # three of them are kept, and what is below the lowest is dropped
            await add(store, iteration, 1)
            assert await store.settle(key(iteration), b"digest", planned())
        await add(store, 9, 7)
        assert await taken(store) == 7

    in_store(scenario)


def test_new_attempt_and_a_closed_job_have_nothing_that_waits(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await store.put_job(record())
        await add(store, 0, 60)
        await add(store, 0, 30, replica=1)
        await store.put_job(record(attempt=2, version=1))
        await add(store, 0, 80, attempt=2)
        assert await taken(store, attempt=2) == 80
        await store.put_job(replace(record(attempt=2, version=2), closed=True))
        await store.put_job(record(attempt=3, version=3))
        await add(store, 0, MOST_BYTES, attempt=3)

    in_store(scenario)


def test_owner_is_kept_with_the_job(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        written = await store.put_job(replace(record(), owner="token:vision"))
        assert written is not None
        assert (await store.job("job"), list(await store.jobs())) == (written, [written])
        assert written.owner == "token:vision"

    in_store(scenario)
