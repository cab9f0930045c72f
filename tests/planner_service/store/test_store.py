"""Shows that a store's writes are compare-and-sets, that attempts replace each other whole, and that it forgets.

`test_queue` shows how what waits is shared out among planners.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from store_cases import add, claimant, claimed, key, plan, planned, record, unplanned

from planner_service.store import (
    Answer,
    AttemptOverError,
    Claim,
    PlanStore,
    Progress,
    QueueFullError,
    TooOldError,
)
from planner_service.store.records import LATE, late_reason

if TYPE_CHECKING:
    from store.conftest import InStore

KEPT = 3


def test_job_is_written_only_over_the_version_that_was_read(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        assert await store.job("job") is None
        first = await store.put_job(record())
        assert first is not None
        assert first.version == 1
        assert await store.put_job(record(attempt=2)) is None
        second = await store.put_job(replace(first, attempt=2))
        assert second is not None
        assert await store.put_job(replace(first, attempt=3)) is None
        assert await store.job("job") == second

    in_store(scenario)


def test_one_of_many_writers_wins(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        specs = [str(index).encode() for index in range(16)]
        written = await asyncio.gather(*(store.put_job(record(spec=spec)) for spec in specs))
        winners = [one for one in written if one is not None]
        assert len(winners) == 1
        assert await store.job("job") == winners[0]

    in_store(scenario)


def test_jobs_are_listed_by_id(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        for job_id in ("b", "a"):
            await store.put_job(record(job_id))
        assert [job.job_id for job in await store.jobs()] == ["a", "b"]

    in_store(scenario)


def test_first_batch_of_a_key_stands(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await store.put_job(record())
        first = await store.add_batch(key(0), digest=b"one", batch=b"batch", limit=9)
        assert await store.add_batch(key(0), digest=b"two", batch=b"other", limit=9) == replace(first, new=False)
        assert (first.digest, first.settled, first.new) == (b"one", False, True)
        claim = await store.claim(claimant(), [])
        assert isinstance(claim, Claim)
        assert (claim.digest, claim.batch) == (b"one", b"batch")
        await store.settle(key(0), b"one", planned())
        again = await store.add_batch(key(0), digest=b"two", batch=b"other", limit=9)
        assert (again.digest, again.settled, again.new) == (b"one", True, False)

    in_store(scenario)


def test_first_outcome_of_a_key_stands(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await store.put_job(record())
        await add(store, 0)
        assert await store.settle(key(0), b"digest", planned("first"))
        assert not await store.settle(key(0), b"digest", planned("second"))
        entry = await store.entry(key(0))
        assert entry is not None
        assert entry.outcome == planned("first")

    in_store(scenario)


def test_outcome_of_another_batch_or_of_none_does_not_count(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await store.put_job(record())
        await add(store, 0)
        assert not await store.settle(key(0), b"other digest", planned())
        assert not await store.settle(key(1), b"digest", planned())
        entry = await store.entry(key(0))
        assert entry is not None
        assert entry.outcome is None

    in_store(scenario)


def test_next_answer_is_of_the_lowest_iteration_from_a_position_on(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await store.put_job(record())
        for iteration in (5, 2, 9):
            await add(store, iteration)
        await store.settle(key(5), b"digest", planned())
        await store.settle(key(9), b"digest", unplanned())
        replica = key(0).replica
        assert await store.next_answer(replica, 0, 0) is None  # 2 has no outcome, and comes before 5
        assert await store.next_answer(replica, 0, 3) == Answer(iteration=5, response=b"plan", more=True)
        assert await store.next_answer(replica, 1, 5) == Answer(iteration=5, response=b"PLAN", more=True)
        assert await store.next_answer(replica, 1, 6) == Answer(iteration=9, unplanned_reason="no")
        assert await store.next_answer(replica, 1, 10) is None
        await add(store, 7)
        assert await store.next_answer(replica, 1, 5) == Answer(iteration=5, response=b"PLAN")
        together = await asyncio.gather(
            *(store.next_answer(replica, rank, first) for rank in (0, 1) for first in (5, 8))
        )
        assert [answer and (answer.iteration, answer.response) for answer in together] == [
            (5, b"plan"),
            (9, b""),
            (5, b"PLAN"),
            (9, b""),
        ]

    in_store(scenario)


def test_iterations_are_ordered_as_numbers_up_to_the_last(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        last = 2**63 - 1
        await store.put_job(record())
        for iteration in (last, 100, 99, last - 1):
            await add(store, iteration)
        held: list[Claim] = []
        for _ in range(4):
            claim = await store.claim(claimant(), held)
            assert isinstance(claim, Claim)
            held.append(claim)
        assert [claim.key.iteration for claim in held] == [99, 100, last - 1, last]
        for claim in held:
            await store.settle(claim.key, claim.digest, planned())
        assert (await store.progress("job")).last_planned_iteration == last
        answer = Answer(iteration=last - 1, response=b"plan", more=True)
        assert await store.next_answer(key(0).replica, 0, 101) == answer

    in_store(scenario)


def test_replicas_are_apart(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await store.put_job(record())
        await add(store, 0, replica=1)
        assert await store.entry(key(0, replica=0)) is None
        assert await store.entry(key(0, replica=1)) is not None

    in_store(scenario)


def test_first_report_of_a_rank_and_iteration_counts(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await store.put_job(record())
        assert await store.add_report(key(0), 1, b"one")
        assert not await store.add_report(key(0), 1, b"other")
        assert await store.add_report(key(0), 0, b"zero")
        assert await store.reports(key(0)) == [b"zero", b"one"]
        assert await store.reports(key(1)) == []

    in_store(scenario)


def test_progress_is_the_highest_planned_and_reported(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await store.put_job(record())
        assert await store.progress("job") == Progress(last_planned_iteration=-1, last_reported_iteration=-1)
        for iteration in (4, 2):
            await plan(store, iteration)
        for iteration in (4, 2):
            await store.add_report(key(iteration), 0, b"report")
        await plan(store, 7, unplanned())
        assert await store.progress("job") == Progress(
            last_planned_iteration=4, last_reported_iteration=4, num_reported=2
        )

    in_store(scenario)


def test_old_iterations_are_dropped_and_stay_so(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await store.put_job(record())
        for iteration in range(KEPT + 2):
            await plan(store, iteration)
            await store.add_report(key(iteration), 0, b"report")
        for dropped in (0, 1):
            for attempted in (
                store.entry(key(dropped)),
                add(store, dropped),
                store.add_report(key(dropped), 1, b"report"),
                store.reports(key(dropped)),
                store.next_answer(key(0).replica, 0, dropped),
            ):
                with pytest.raises(TooOldError, match="the oldest kept is 2"):
                    await attempted
        assert await store.entry(key(2)) is not None
        assert await store.reports(key(2)) == [b"report"]

    in_store(scenario)


def test_reports_alone_are_bounded_too(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await store.put_job(record())
        for iteration in range(10 * KEPT):
            await store.add_report(key(iteration), 0, b"report")
        kept = [iteration for iteration in range(10 * KEPT) if await store.reports(key(iteration))]
        assert kept == list(range(9 * KEPT, 10 * KEPT))

    in_store(scenario)


def test_higher_attempt_drops_what_the_lower_one_had(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await store.put_job(record())
        await plan(store, 0)
        await store.add_report(key(0), 0, b"report")
        await store.put_job(record(attempt=2, version=1))
        for attempted in (
            store.entry(key(0)),
            store.next_answer(key(0).replica, 0, 0),
            add(store, 1),
            store.settle(key(0), b"digest", planned()),
            store.add_report(key(0), 1, b"report"),
        ):
            with pytest.raises(AttemptOverError):
                await attempted
        assert await store.entry(key(0, attempt=2)) is None
        assert await store.progress("job") == Progress()

    in_store(scenario)


def test_closed_job_takes_nothing_and_keeps_its_plans(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await store.put_job(record())
        await plan(store, 0)
        await add(store, 1)
        await store.put_job(replace(record(version=1), closed=True))
        with pytest.raises(AttemptOverError):
            await add(store, 2)
        with pytest.raises(AttemptOverError):
            await store.next_answer(key(0).replica, 0, 0)
        kept = await store.entry(key(0))
        assert kept is not None
        assert kept.outcome == planned("plan 0")
        assert await store.entry(key(1)) is None

    in_store(scenario)


def test_closed_jobs_are_forgotten_in_the_order_of_closing(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        for job_id in ("a", "b", "c", "d"):
            await store.put_job(record(job_id))
        for job_id in ("c", "a", "b"):
            await store.put_job(replace(record(job_id, version=1), closed=True))
        assert [job.job_id for job in await store.jobs()] == ["a", "b", "d"]

    in_store(scenario)


def test_watch_wakes_for_outcomes_attempts_and_closing_of_its_replica(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await store.put_job(record())
        with store.watch(key(0).replica) as watch, store.watch(key(0, replica=1).replica) as other:
            woken = 0
            for iteration in range(4):
                await plan(store, iteration)
                await watch.changed()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(other.changed(), 0.02)
                    woken += 1
            assert woken <= 1, "a store that has just been started may wake everybody once more"
            await store.put_job(record(attempt=2, version=1))
            await watch.changed()
            await other.changed()
            watch.wake()
            await watch.changed()

    in_store(scenario)


def test_change_between_two_waits_is_not_lost(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await store.put_job(record())
        with store.watch(key(0).replica) as watch:
            waiting = asyncio.create_task(watch.changed())
            await asyncio.sleep(0)
            await plan(store, 0)
            await plan(store, 1)
            await waiting
            await plan(store, 2)
            await watch.changed()

    in_store(scenario)


def test_outcomes_are_bounded_by_what_they_take_and_the_newest_two_stay(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await store.put_job(replace(record(), replicas=2))  # 500 bytes each
        for iteration, size in enumerate((150, 150, 90, 1_000, 1_000)):
            await plan(store, iteration, planned("x" * size))
        for dropped in range(3):
            with pytest.raises(TooOldError, match="the oldest kept is 3"):
                await store.entry(key(dropped))
        assert await store.entry(key(3)) is not None
        await plan(store, 5)
        with pytest.raises(TooOldError, match="the oldest kept is 4"):
            await store.entry(key(3))

    in_store(scenario)


def test_reports_are_bounded_by_what_they_take_and_those_of_the_newest_iteration_stay(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await store.put_job(record())  # 250 bytes of reports
        for iteration, size in enumerate((100, 100, 100, 300)):
            for rank in (0, 1):
                await store.add_report(key(iteration), rank, b"x" * (size // 2))
            kept = [len(await store.reports(key(other))) for other in range(iteration + 1)]
            assert kept == ([2], [2, 2], [0, 2, 2], [0, 0, 0, 2])[iteration]

    in_store(scenario)


def test_report_settles_what_nobody_will_run(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await store.put_job(record())
        for iteration in (3, 4, 5):
            await add(store, iteration)
        await add(store, 4, replica=1)
        with store.watch(key(0).replica) as watch:
            await store.add_report(key(4), 1, b"report")
            await watch.changed()
        for iteration in (3, 4):
            answer = await store.next_answer(key(0).replica, 0, iteration)
            assert answer == Answer(iteration=iteration, unplanned_reason=late_reason(1, 4), more=iteration == 3)
        assert await store.next_answer(key(0).replica, 0, 5) is None
        assert await store.next_answer(key(0, replica=1).replica, 0, 4) is None
        waiting = [await claimed(store, claimant(str(number))) for number in range(3)]
        assert waiting == [("job", 4), ("job", 5), None]

    in_store(scenario)


def test_batch_that_comes_after_its_time_is_settled_at_once(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await store.put_job(record())
        await store.add_report(key(4), 1, b"report")
        added = await store.add_batch(key(4), digest=b"digest", batch=b"batch", limit=1, claimant=claimant())
        assert (added.settled, added.new, added.claim) == (True, True, None)
        assert await store.next_answer(key(0).replica, 0, 0) == Answer(iteration=4, unplanned_reason=LATE)
        assert await claimed(store, claimant()) is None

    in_store(scenario)


def test_replica_has_so_many_batches_without_an_outcome_and_no_more(in_store: InStore) -> None:
    async def scenario(store: PlanStore) -> None:
        await store.put_job(record())
        for iteration in (0, 1):
            await add(store, iteration, limit=2)
        with pytest.raises(QueueFullError, match="2 batches of replica 0"):
            await add(store, 2, limit=2)
        await add(store, 1, limit=2)  # again
        await add(store, 0, limit=2, replica=1)
        await store.settle(key(0), b"digest", planned())
        await add(store, 2, limit=2)

    in_store(scenario)
