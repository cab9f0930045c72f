"""Shows that the default store holds no more than it may, whatever is put there, and that others keep their room."""

from __future__ import annotations

import asyncio

import pytest
from serving import run

from planner_service.store import BatchKey, Claimant, JobRecord, MemoryStore, Outcome, ReplicaKey, StoreFullError

MOST = 100_000
LARGE = 10_000


def record(job_id: str, owner: str, *, attempt: int = 1, spec: bytes = b"spec") -> JobRecord:
    return JobRecord(
        job_id=job_id, attempt=attempt, spec=spec, partition=b"", replicas=64, owner=owner, version=attempt - 1
    )


def key(job_id: str, iteration: int, *, replica: int = 0, attempt: int = 1) -> BatchKey:
    return BatchKey(replica=ReplicaKey(job_id=job_id, attempt=attempt, replica=replica), iteration=iteration)


async def add(store: MemoryStore, of: BatchKey, batch: bytes = b"batch") -> None:
    await store.add_batch(of, digest=b"digest", batch=batch, limit=1_000)


async def settle(store: MemoryStore, of: BatchKey, size: int) -> None:
    assert await store.settle(of, b"digest", Outcome(responses=(bytes(size),), answer=b""))


async def fill(store: MemoryStore, job_id: str) -> int:
    """Report from one replica after the other until there is no room; returns how much was taken."""
    for replica in range(64):
        try:
            await store.add_report(key(job_id, 0, replica=replica), 0, bytes(LARGE))
        except StoreFullError:
            return replica * LARGE
    raise AssertionError("there is room for everything")


def test_reports_batches_plans_and_jobs_share_the_room_of_their_client() -> None:
    async def scenario() -> None:
        store = MemoryStore(most_bytes=MOST)
        await store.put_job(record("a", "one"))
        await store.put_job(record("b", "two"))
        await add(store, key("a", 5))
        taken = await fill(store, "a")
        assert MOST // 2 - 2 * LARGE < taken <= MOST // 2
        with pytest.raises(StoreFullError, match="half of DIP_MAX_STORE_BYTES"):
            await add(store, key("a", 6), bytes(LARGE))
        with pytest.raises(StoreFullError):
            await store.put_job(record("c", "one", spec=bytes(LARGE)))
        await settle(store, key("a", 5), LARGE)
        assert "no room for its plan" in (await store.entry(key("a", 5))).outcome.unplanned_reason
        await add(store, key("b", 0), bytes(LARGE))  # another's
        await settle(store, key("b", 0), LARGE)
        assert (await store.entry(key("b", 0))).outcome.responses == (bytes(LARGE),)

    run(scenario())


def test_all_clients_together_take_no_more_than_there_is() -> None:
    async def scenario() -> None:
        store = MemoryStore(most_bytes=MOST)
        for number in range(9):
            await store.put_job(record(f"job-{number}", f"client-{number}"))
            await store.add_report(key(f"job-{number}", 0), 0, bytes(LARGE))
        await store.put_job(record("more", "another"))
        with pytest.raises(StoreFullError, match="all jobs take"):
            await store.add_report(key("more", 0), 0, bytes(LARGE))

    run(scenario())


def test_what_ranks_have_run_gives_way() -> None:
    async def scenario() -> None:
        store = MemoryStore(most_bytes=MOST, kept_bytes=10 * MOST)
        await store.put_job(record("a", "one"))
        for iteration in range(40):
            await add(store, key("a", iteration))
            await settle(store, key("a", iteration), LARGE)
            assert not (await store.entry(key("a", iteration))).outcome.unplanned_reason
            await store.add_report(key("a", iteration), 0, b"report")

    run(scenario())


def test_room_comes_back_with_the_end_of_an_attempt_and_of_a_job() -> None:
    async def scenario() -> None:
        store = MemoryStore(most_bytes=MOST, kept_closed_jobs=0)
        await store.put_job(record("a", "one"))
        taken = await fill(store, "a")
        written = await store.put_job(record("a", "one", attempt=2))
        for replica in range(taken // LARGE):
            await store.add_report(key("a", 0, replica=replica, attempt=2), 0, bytes(LARGE))
        await store.put_job(
            JobRecord(
                job_id="a",
                attempt=2,
                spec=b"spec",
                partition=b"",
                replicas=64,
                owner="one",
                version=written.version,
                closed=True,
            )
        )
        await store.put_job(record("b", "one"))
        assert await fill(store, "b") == taken

    run(scenario())


def test_batches_that_wait_take_more_than_their_bytes() -> None:
    async def scenario() -> None:
        store = MemoryStore(most_bytes=MOST)
        await store.put_job(record("a", "one"))
        for iteration in range(20):
            await add(store, key("a", iteration), b"")
        with pytest.raises(StoreFullError):
            await asyncio.gather(*(add(store, key("a", iteration), b"") for iteration in range(20, 50)))
        claim = await store.claim(Claimant(name="me", lease_ms=1_000, workers=1), ())
        assert claim.key == key("a", 0)

    run(scenario())
