"""Shows that what a client asks for at once waits behind its own, in order, and behind nobody else's."""

from __future__ import annotations

import asyncio

from serving import run

from planner_service.server.turns import Turns


def test_one_too_many_waits_for_its_own_clients_turn() -> None:
    async def scenario() -> None:
        turns, begun, go_on = Turns(most=2), [], asyncio.Event()

        async def use(client: str, number: int) -> None:
            async with turns.turn(client):
                begun.append((client, number))
                await go_on.wait()

        uses = [asyncio.create_task(use("greedy", number)) for number in range(4)]
        uses.append(asyncio.create_task(use("modest", 0)))
        await asyncio.sleep(0)
        assert begun == [("greedy", 0), ("greedy", 1), ("modest", 0)]
        uses[2].cancel()
        go_on.set()
        await asyncio.gather(*uses, return_exceptions=True)
        assert begun[3:] == [("greedy", 3)]

    run(scenario())


def test_clients_that_left_are_forgotten() -> None:
    async def scenario() -> None:
        turns = Turns(most=1)
        for number in range(3):
            async with turns.turn(f"client {number}"):
                assert len(turns) == 1
        assert len(turns) == 0

    run(scenario())
