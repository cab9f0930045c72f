"""Shows that what waits in a store is shared out among planners: once, fairly, and again when a planner is gone."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from store_cases import add, claimant, claimed, key, planned, record

from planner_service.store import Claim, PlanStore, Wait

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.conftest import InStore

    from planner_service.store import Claimant


async def take(store: PlanStore, name: str = "one", *, lease_ms: int = 600_000, held: tuple[Claim, ...] = ()) -> Claim:
    claim = await store.claim(claimant(name, lease_ms=lease_ms), held)
    assert isinstance(claim, Claim)
    return claim


async def taken_in_time(store: PlanStore, by: Claimant, held: Sequence[Claim] = ()) -> Claim:
    """Claim as soon as the lease ends that is in the way."""
    while isinstance(claim := await store.claim(by, held), Wait):
        await asyncio.sleep((claim.lease_ends_ms or 1) / 1000)
    return claim


async def ends_in_ms(store: PlanStore) -> int:
    """When the lease ends that keeps a planner from the only batch."""
    wait = await store.claim(claimant("waits"), [])
    assert isinstance(wait, Wait)
    assert wait.lease_ends_ms is not None
    return wait.lease_ends_ms


async def jobs(store: PlanStore, *job_ids: str) -> None:
    for job_id in job_ids:
        await store.put_job(record(job_id))


def test_each_batch_is_claimed_once_the_nearest_iteration_first(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await jobs(store, "job")
        for iteration, replica in ((7, 0), (5, 1), (5, 0), (12, 0)):
            await add(store, iteration, replica=replica)
        found = [await take(store, f"planner {number}") for number in range(4)]
        taken = [(claim.key.iteration, claim.key.replica.replica) for claim in found]
        assert taken == [(5, 1), (5, 0), (7, 0), (12, 0)]
        assert {claim.tries for claim in found} == {0}
        assert await claimed(store, claimant("planner 4")) is None

    in_store(scenario)


def test_iteration_that_is_being_run_comes_last(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await jobs(store, "job")
        for iteration in (99, 100, 101, 102):
            await add(store, iteration)
        await add(store, 100, replica=1)
        await store.add_report(key(99), 0, b"report")
        found = [await take(store, str(number)) for number in range(4)]
        taken = [(claim.key.iteration, claim.key.replica.replica) for claim in found]
        assert taken == [(100, 1), (101, 0), (102, 0), (100, 0)]

    in_store(scenario)


def test_of_many_planners_one_has_each_batch(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await jobs(store, "job")
        for iteration in range(4):
            await add(store, iteration)
        found = await asyncio.gather(*(claimed(store, claimant(f"planner {number}")) for number in range(8)))
        assert sorted(one[1] for one in found if one) == [0, 1, 2, 3]

    in_store(scenario)


def test_jobs_take_turns(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await jobs(store, "a", "b", "c")
        for job_id, count in (("a", 4), ("b", 2), ("c", 1)):
            for iteration in range(count):
                await add(store, iteration, job_id=job_id)
        found = [await claimed(store, claimant(str(number))) for number in range(7)]
        order = "".join(one[0] for one in found if one)
        assert sorted(order[:3]) == ["a", "b", "c"]
        assert sorted(order[3:5]) == ["a", "b"]
        assert order[5:] == "aa"

    in_store(scenario)


def test_clients_take_turns_however_many_jobs_they_opened(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        for job_id in ("greedy-1", "greedy-2", "greedy-3", "modest"):
            await store.put_job(replace(record(job_id), owner=job_id.partition("-")[0]))
            for iteration in range(3):
                await add(store, iteration, job_id=job_id)
        found = [await claimed(store, claimant(str(number))) for number in range(12)]
        taken = [one[0] for one in found if one]
        assert [of.partition("-")[0] for of in taken[:7]].count("modest") == 3
        of_greedy = [of for of in taken if of != "modest"]
        for start in (0, 3, 6):
            assert sorted(of_greedy[start : start + 3]) == ["greedy-1", "greedy-2", "greedy-3"]

    in_store(scenario)


def test_only_the_jobs_asked_for_are_taken(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await jobs(store, "a", "b")
        await add(store, 0, job_id="a")
        await add(store, 0, job_id="b")
        own = claimant("own", jobs=frozenset({"b"}))
        assert await claimed(store, own) == ("b", 0)
        assert await claimed(store, replace(own, name="another")) is None
        assert await claimed(store, claimant("none", jobs=frozenset())) is None
        assert await claimed(store, claimant("all")) == ("a", 0)

    in_store(scenario)


def test_batch_may_be_claimed_as_it_is_added(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await jobs(store, "job")
        added = await store.add_batch(key(3), digest=b"digest", batch=b"batch", limit=9, claimant=claimant())
        assert added.claim is not None
        assert (added.claim.key, added.claim.digest, added.claim.batch) == (key(3), b"digest", b"batch")
        assert added.claim.tries == 0
        assert await claimed(store, claimant("other")) is None
        again = await store.add_batch(key(3), digest=b"digest", batch=b"batch", limit=9, claimant=claimant("other"))
        assert again.claim is None
        assert list(await store.renew(claimant(), [added.claim])) == []

    in_store(scenario)


def test_lease_that_ends_lets_another_planner_claim_and_counts_as_a_try(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await jobs(store, "job")
        await add(store, 0)
        first = await take(store, "dies", lease_ms=600_000)
        assert 0 < await ends_in_ms(store) <= 600_000
        assert list(await store.renew(claimant("dies", lease_ms=1), [first])) == []  # the last that is heard of it
        claim = await taken_in_time(store, claimant("waits"))
        assert (claim.key, claim.tries) == (key(0), 1)
        assert list(await store.renew(claimant("dies"), [first])) == [first]
        assert list(await store.renew(claimant("waits"), [claim])) == []

    in_store(scenario)


def test_whoever_is_first_to_settle_decides_whoever_has_the_lease(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await jobs(store, "job")
        await add(store, 0)
        await take(store, "slow", lease_ms=1)
        claim = await taken_in_time(store, claimant("quick"))
        assert await store.settle(key(0), b"digest", planned("slow"))
        assert not await store.settle(key(0), b"digest", planned("quick"))
        assert list(await store.renew(claimant("quick"), [claim])) == [claim]
        assert await store.claim(claimant("third"), []) == Wait(lease_ends_ms=None)

    in_store(scenario)


def test_renewed_lease_ends_later(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await jobs(store, "job")
        await add(store, 0)
        claim = await take(store, "lives", lease_ms=600_000)
        assert 0 < await ends_in_ms(store) <= 600_000
        for lease_ms in (1_300_000, 3_000_000):
            assert list(await store.renew(claimant("lives", lease_ms=lease_ms), [claim])) == []
            assert lease_ms / 2 < await ends_in_ms(store) <= lease_ms

    in_store(scenario)


def test_released_claim_is_free_at_once_and_was_no_try(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await jobs(store, "job")
        await add(store, 0)
        claim = await take(store, "leaves")
        with store.watch_queue() as watch:
            await store.release(claimant("leaves"), [claim])
            await watch.changed()
        again = await take(store, "stays")
        assert (again.key, again.tries) == (key(0), 0)

    in_store(scenario)


def test_claim_whose_answer_was_lost_is_had_again_after_its_lease_and_no_sooner(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await jobs(store, "job")
        await add(store, 0)
        held = await take(store)
        assert isinstance(await store.claim(claimant(), []), Wait), "its answer may be under way"
        await add(store, 1)
        lost = await take(store, lease_ms=1, held=(held,))
        again = await taken_in_time(store, claimant(), [held])
        assert again.key == lost.key == key(1)
        assert await store.claim(claimant(), [held, again]) == Wait(lease_ends_ms=None)

    in_store(scenario)


def test_claim_that_is_known_is_not_had_again_however_long_it_was_not_renewed(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await jobs(store, "job")
        await add(store, 0)
        held = await take(store, lease_ms=1)
        await asyncio.sleep(0.01)
        assert await store.claim(claimant(lease_ms=1), [held]) == Wait(lease_ends_ms=None)
        assert (await take(store, "other")).key == held.key

    in_store(scenario)


@pytest.mark.parametrize("ending", ["attempt", "closed", "settled", "reported"])
def test_claim_is_lost_with_what_it_is_of(in_store: InStore, ending: str) -> None:
    async def scenario(store: PlanStore) -> None:
        await jobs(store, "job")
        await add(store, 0)
        await add(store, 1)
        first = await take(store)
        match ending:
            case "attempt":
                await store.put_job(record(attempt=2, version=1))
            case "closed":
                await store.put_job(replace(record(version=1), closed=True))
            case "settled":
                await store.settle(key(0), b"digest", planned())
            case "reported":
                await store.add_report(key(0), 0, b"report")
        assert list(await store.renew(claimant(), [first])) == [first]
        goes_on = ending in ("settled", "reported")
        assert await claimed(store, claimant("other")) == (("job", 1) if goes_on else None)
        assert await claimed(store, claimant("another")) is None

    in_store(scenario)


def test_new_attempt_queues_anew(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await jobs(store, "job")
        await add(store, 8)
        await take(store)
        await store.put_job(record(attempt=2, version=1))
        await add(store, 3, attempt=2)
        claim = await take(store, "other")
        assert (claim.key, claim.tries) == (key(3, attempt=2), 0)

    in_store(scenario)


def test_added_batch_wakes_whoever_waits_for_work_or_for_the_end_of_a_lease(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await jobs(store, "job")
        with store.watch_queue() as watch:
            await add(store, 0)
            await watch.changed()
            await take(store)
            await store.add_batch(key(1), digest=b"digest", batch=b"batch", limit=9, claimant=claimant("two"))
            await watch.changed()
            wait = await store.claim(claimant("three"), [])
            assert isinstance(wait, Wait)
            assert wait.lease_ends_ms

    in_store(scenario)
