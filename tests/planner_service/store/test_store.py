"""Shows that a store's writes are compare-and-sets, that attempts replace each other whole, and that it forgets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from serving import run

from planner_service.store import (
    AttemptOverError,
    BatchKey,
    JobRecord,
    MemoryStore,
    Outcome,
    PlanStore,
    Progress,
    ReplicaKey,
    TooOldError,
)

MakeStore = Callable[[], PlanStore]
KEPT = 3


@pytest.fixture(params=["memory"])
def make_store(request: pytest.FixtureRequest) -> MakeStore:
    """Return a maker of empty stores that keep `KEPT` iterations and 2 closed jobs; every implementation in turn."""
    assert request.param == "memory"
    return lambda: MemoryStore(kept_iterations=KEPT, kept_closed_jobs=2)


def record(job_id: str = "job", attempt: int = 1, *, version: int = 0, spec: bytes = b"spec") -> JobRecord:
    return JobRecord(job_id=job_id, attempt=attempt, spec=spec, partition=b"partition", version=version)


def key(iteration: int, *, job_id: str = "job", attempt: int = 1, replica: int = 0) -> BatchKey:
    return BatchKey(replica=ReplicaKey(job_id=job_id, attempt=attempt, replica=replica), iteration=iteration)


def planned(text: str = "plan") -> Outcome:
    return Outcome(responses=(text.encode(), text.upper().encode()), answer=b"answer")


def unplanned() -> Outcome:
    return Outcome(responses=(b"no", b"no"), unplanned_reason="no")


async def store_with_job(make_store: MakeStore) -> PlanStore:
    store = make_store()
    assert await store.put_job(record()) is not None
    return store


async def plan(store: PlanStore, iteration: int, outcome: Outcome | None = None) -> None:
    await store.add_batch(key(iteration), digest=b"digest", request=b"request")
    await store.settle(key(iteration), outcome or planned(f"plan {iteration}"))


def test_job_is_written_only_over_the_version_that_was_read(make_store: MakeStore) -> None:
    async def scenario() -> None:
        store = make_store()
        assert await store.job("job") is None
        first = await store.put_job(record())
        assert first is not None
        assert first.version == 1
        assert await store.put_job(record(attempt=2)) is None
        second = await store.put_job(replace(first, attempt=2))
        assert second is not None
        assert await store.put_job(replace(first, attempt=3)) is None
        assert await store.job("job") == second

    run(scenario())


def test_one_of_many_writers_wins(make_store: MakeStore) -> None:
    async def scenario() -> None:
        store = make_store()
        specs = [str(index).encode() for index in range(16)]
        written = await asyncio.gather(*(store.put_job(record(spec=spec)) for spec in specs))
        winners = [one for one in written if one is not None]
        assert len(winners) == 1
        assert await store.job("job") == winners[0]

    run(scenario())


def test_jobs_are_listed_by_id(make_store: MakeStore) -> None:
    async def scenario() -> None:
        store = make_store()
        for job_id in ("b", "a"):
            await store.put_job(record(job_id))
        assert [job.job_id for job in await store.jobs()] == ["a", "b"]

    run(scenario())


def test_first_batch_of_a_key_stands(make_store: MakeStore) -> None:
    async def scenario() -> None:
        store = await store_with_job(make_store)
        first = await store.add_batch(key(0), digest=b"one", request=b"request")
        assert await store.add_batch(key(0), digest=b"two", request=b"other") == first
        assert (first.digest, first.request, first.outcome) == (b"one", b"request", None)
        await store.settle(key(0), planned())
        again = await store.add_batch(key(0), digest=b"two", request=b"other")
        assert (again.digest, again.outcome) == (b"one", planned())

    run(scenario())


def test_first_outcome_of_a_key_stands(make_store: MakeStore) -> None:
    async def scenario() -> None:
        store = await store_with_job(make_store)
        await store.add_batch(key(0), digest=b"digest", request=b"request")
        assert await store.settle(key(0), planned("first")) == planned("first")
        assert await store.settle(key(0), planned("second")) == planned("first")

    run(scenario())


def test_next_entry_is_the_lowest_from_a_position_on(make_store: MakeStore) -> None:
    async def scenario() -> None:
        store = await store_with_job(make_store)
        for iteration in (5, 2, 9):
            await store.add_batch(key(iteration), digest=b"digest", request=b"request")
        await store.settle(key(5), planned())
        found = [await store.next_entry(key(0).replica, position) for position in (0, 3, 6, 10)]
        assert [entry and (entry.iteration, entry.outcome) for entry in found] == [
            (2, None),
            (5, planned()),
            (9, None),
            None,
        ]
        assert await store.unsettled(key(0).replica) == [2, 9]

    run(scenario())


def test_replicas_are_apart(make_store: MakeStore) -> None:
    async def scenario() -> None:
        store = await store_with_job(make_store)
        await store.add_batch(key(0, replica=1), digest=b"digest", request=b"request")
        assert await store.entry(key(0, replica=0)) is None
        assert await store.entry(key(0, replica=1)) is not None

    run(scenario())


def test_first_report_of_a_rank_and_iteration_counts(make_store: MakeStore) -> None:
    async def scenario() -> None:
        store = await store_with_job(make_store)
        assert await store.add_report(key(0), 1, b"one")
        assert not await store.add_report(key(0), 1, b"other")
        assert await store.add_report(key(0), 0, b"zero")
        assert await store.reports(key(0)) == [b"zero", b"one"]
        assert await store.reports(key(1)) == []

    run(scenario())


def test_progress_is_the_highest_planned_and_reported(make_store: MakeStore) -> None:
    async def scenario() -> None:
        store = await store_with_job(make_store)
        assert await store.progress("job") == Progress(last_planned_iteration=-1, last_reported_iteration=-1)
        for iteration in (4, 2):
            await plan(store, iteration)
            await store.add_report(key(iteration), 0, b"report")
        await plan(store, 7, unplanned())
        assert await store.progress("job") == Progress(last_planned_iteration=4, last_reported_iteration=4)

    run(scenario())


def test_old_iterations_are_dropped_and_stay_so(make_store: MakeStore) -> None:
    async def scenario() -> None:
        store = await store_with_job(make_store)
        for iteration in range(KEPT + 2):
            await plan(store, iteration)
            await store.add_report(key(iteration), 0, b"report")
        for dropped in (0, 1):
            for attempted in (
                store.entry(key(dropped)),
                store.add_batch(key(dropped), digest=b"digest", request=b"request"),
                store.add_report(key(dropped), 1, b"report"),
                store.reports(key(dropped)),
                store.next_entry(key(0).replica, dropped),
            ):
                with pytest.raises(TooOldError, match="the oldest kept is 2"):
                    await attempted
        assert await store.entry(key(2)) is not None
        assert await store.reports(key(2)) == [b"report"]

    run(scenario())


def test_reports_alone_are_bounded_too(make_store: MakeStore) -> None:
    async def scenario() -> None:
        store = await store_with_job(make_store)
        for iteration in range(10 * KEPT):
            await store.add_report(key(iteration), 0, b"report")
        kept = [iteration for iteration in range(10 * KEPT) if await store.reports(key(iteration))]
        assert kept == list(range(9 * KEPT, 10 * KEPT))

    run(scenario())


def test_higher_attempt_drops_what_the_lower_one_had(make_store: MakeStore) -> None:
    async def scenario() -> None:
        store = await store_with_job(make_store)
        await plan(store, 0)
        await store.add_report(key(0), 0, b"report")
        await store.put_job(record(attempt=2, version=1))
        for attempted in (
            store.entry(key(0)),
            store.next_entry(key(0).replica, 0),
            store.add_batch(key(1), digest=b"digest", request=b"request"),
            store.settle(key(0), planned()),
            store.add_report(key(0), 1, b"report"),
        ):
            with pytest.raises(AttemptOverError):
                await attempted
        assert await store.entry(key(0, attempt=2)) is None
        assert await store.progress("job") == Progress()

    run(scenario())


def test_closed_job_takes_nothing_and_keeps_its_plans(make_store: MakeStore) -> None:
    async def scenario() -> None:
        store = await store_with_job(make_store)
        await plan(store, 0)
        await store.add_batch(key(1), digest=b"digest", request=b"request")
        await store.put_job(replace(record(version=1), closed=True))
        with pytest.raises(AttemptOverError):
            await store.add_batch(key(2), digest=b"digest", request=b"request")
        with pytest.raises(AttemptOverError):
            await store.next_entry(key(0).replica, 0)
        kept = await store.entry(key(0))
        assert kept is not None
        assert kept.outcome == planned("plan 0")
        assert await store.entry(key(1)) is None

    run(scenario())


def test_closed_jobs_are_forgotten_in_the_order_of_closing(make_store: MakeStore) -> None:
    async def scenario() -> None:
        store = make_store()
        for job_id in ("a", "b", "c", "d"):
            await store.put_job(record(job_id))
        for job_id in ("c", "a", "b"):
            await store.put_job(replace(record(job_id, version=1), closed=True))
        assert [job.job_id for job in await store.jobs()] == ["a", "b", "d"]

    run(scenario())


def test_watch_wakes_for_outcomes_attempts_and_closing_of_its_replica(make_store: MakeStore) -> None:
    async def scenario() -> None:
        store = await store_with_job(make_store)
        with store.watch(key(0).replica) as watch, store.watch(key(0, replica=1).replica) as other:
            await plan(store, 0)
            await watch.changed()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(other.changed(), 0.02)
            await store.put_job(record(attempt=2, version=1))
            await watch.changed()
            await other.changed()
            watch.wake()
            await watch.changed()

    run(scenario())


def test_change_between_two_waits_is_not_lost(make_store: MakeStore) -> None:
    async def scenario() -> None:
        store = await store_with_job(make_store)
        with store.watch(key(0).replica) as watch:
            waiting = asyncio.create_task(watch.changed())
            await asyncio.sleep(0)
            await plan(store, 0)
            await plan(store, 1)
            await waiting
            await plan(store, 2)
            await watch.changed()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(watch.changed(), 0.02)

    run(scenario())
