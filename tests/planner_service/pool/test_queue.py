"""Shows that jobs take turns, that the nearest iteration goes first, and that no solve is lost on the way."""

from __future__ import annotations

import asyncio

import pytest
from serving import run

from planner_service.pool.messages import PlanTask
from planner_service.pool.queue import SolveQueue
from planner_service.pool.solve import Solve


def solve(lane: str, *order: int) -> Solve:
    return Solve(PlanTask(request=b""), lane=lane, order=order, limit_s=1)


def test_jobs_in_turn_and_nearest_iteration_first() -> None:
    async def scenario() -> None:
        queue = SolveQueue()
        for lane, iteration in [("a", 7), ("a", 5), ("b", 9), ("a", 6), ("b", 8), ("c", 1)]:
            queue.put(solve(lane, iteration))
        taken = [await queue.get() for _ in range(6)]
        assert [(one.lane, *one.order) for one in taken] == [
            ("a", 5),
            ("b", 8),
            ("c", 1),
            ("a", 6),
            ("b", 9),
            ("a", 7),
        ]

    run(scenario())


def test_equal_orders_keep_their_arrival() -> None:
    async def scenario() -> None:
        queue = SolveQueue()
        arrived = [solve("a", 0) for _ in range(5)]
        for one in arrived:
            queue.put(one)
        assert [await queue.get() for _ in arrived] == arrived

    run(scenario())


def test_cancelled_solves_are_passed_over() -> None:
    async def scenario() -> None:
        queue = SolveQueue()
        dropped, kept = solve("a", 0), solve("a", 1)
        queue.put(dropped)
        queue.put(kept)
        dropped.cancel()
        assert await queue.get() is kept

    run(scenario())


@pytest.mark.parametrize("wakes_first", [False, True])
def test_cancelled_get_takes_nothing(wakes_first: bool) -> None:
    async def scenario() -> None:
        queue = SolveQueue()
        first, second = (asyncio.create_task(queue.get()) for _ in range(2))
        await asyncio.sleep(0)
        one = solve("a", 0)
        if wakes_first:  # the cancelled getter was the one that was woken
            queue.put(one)
            first.cancel()
        else:
            first.cancel()
            queue.put(one)
        assert await second is one
        assert first.cancelled()

    run(scenario())


def test_drain_takes_everything() -> None:
    async def scenario() -> None:
        queue = SolveQueue()
        for lane in "aab":
            queue.put(solve(lane, 0))
        assert len(list(queue.drain())) == 3
        assert list(queue.drain()) == []

    run(scenario())
