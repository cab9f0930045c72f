"""Makes one question of those that streams ask at once: an outcome that is stored wakes all ranks of its replica."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from planner_service.store.records import Answer, ReplicaKey

    Answers = dict[int, Answer] | None
    AskStore = Callable[[ReplicaKey, int, Sequence[int]], Coroutine[None, None, Answers]]


class RedisQuestions:
    """Gathers the ranks that ask in one turn of the event loop.

    Parameters
    ----------
    ask
        Asks the store what these ranks of a replica are told next; None: nothing yet.
    """

    def __init__(self, ask: AskStore) -> None:
        self._ask = ask
        self._gathering: dict[tuple[ReplicaKey, int], tuple[set[int], asyncio.Task[Answers]]] = {}

    async def next_answer(self, replica: ReplicaKey, rank: int, first_iteration: int) -> Answer | None:
        """Read what one rank is told next; see `PlanStore.next_answer`."""
        key = replica, first_iteration
        if key not in self._gathering:
            ranks: set[int] = set()
            task = asyncio.create_task(self._answers(key, ranks))
            task.add_done_callback(_look_at)
            self._gathering[key] = ranks, task
        asking, answers = self._gathering[key]
        asking.add(rank)
        found = await asyncio.shield(answers)
        return None if found is None else found[rank]

    async def _answers(self, key: tuple[ReplicaKey, int], ranks: set[int]) -> Answers:
        await asyncio.sleep(0)  # whoever was woken together with the first has asked after one turn
        del self._gathering[key]
        return await self._ask(*key, sorted(ranks))


def _look_at(task: asyncio.Task[Answers]) -> None:
    """Retrieve an error that nobody may have waited for."""
    if not task.cancelled():
        task.exception()
