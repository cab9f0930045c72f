"""Makes one question of those that streams ask at once: an outcome that is stored wakes all ranks of its replica."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from planner_service.store.records import Answer, ReplicaKey

    Answers = dict[int, Answer] | None
    AskStore = Callable[[ReplicaKey, int, Sequence[int]], Coroutine[None, None, Answers]]


class _Question:
    """What is asked of one replica from one iteration on, and the ranks that ask."""

    def __init__(self) -> None:
        self.ranks: set[int] = set()
        self.answers: asyncio.Task[Answers] | None = None


class RedisQuestions:
    """Gathers the ranks that ask in one turn of the event loop.

    Parameters
    ----------
    ask
        Asks the store what these ranks of a replica are told next; None: nothing yet.
    """

    def __init__(self, ask: AskStore) -> None:
        self._ask = ask
        self._gathering: dict[tuple[ReplicaKey, int], _Question] = {}

    async def next_answer(self, replica: ReplicaKey, rank: int, first_iteration: int) -> Answer | None:
        """Read what one rank is told next; see `PlanStore.next_answer`."""
        key = replica, first_iteration
        question = self._gathering.get(key)
        if question is None:
            question = self._gathering[key] = _Question()
            question.answers = asyncio.create_task(self._answers(key, question))
            question.answers.add_done_callback(_look_at)
        question.ranks.add(rank)
        answers = await asyncio.shield(question.answers) if question.answers is not None else None
        return None if answers is None else answers[rank]

    async def _answers(self, key: tuple[ReplicaKey, int], question: _Question) -> Answers:
        await asyncio.sleep(0)  # whoever was woken together with the first has asked after one turn
        del self._gathering[key]
        return await self._ask(*key, sorted(question.ranks))


def _look_at(task: asyncio.Task[Answers]) -> None:
    """Retrieve an error that nobody may have waited for."""
    if not task.cancelled():
        task.exception()
