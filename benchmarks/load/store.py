"""A store that notes when plans reach it, and can hold them back until all replicas have one, around any other."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from benchmarks.load.times import Times, now_ns

if TYPE_CHECKING:
    from planner_service.store import BatchKey, PlanStore


class NotedStore:
    """Does what its store does, and stamps every plan just before it is stored.

    Parameters
    ----------
    store
        What keeps the plans.
    times
        Where stamps go.
    gate
        Whether the plans of an iteration wait for the last of them, to be stored together.
    """

    def __init__(self, store: PlanStore, times: Times, *, gate: bool) -> None:
        self._store = store
        self._times = times
        self._gate = gate
        self._waiting: defaultdict[int, int] = defaultdict(int)
        self._complete: defaultdict[int, asyncio.Event] = defaultdict(asyncio.Event)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def settle(self, key: BatchKey, *arguments: Any) -> Any:
        """Stamp, then store."""
        if self._gate:
            await self._all_of(key.iteration)
        where = (key.iteration, key.replica.replica)
        if not self._times.stored[where]:
            self._times.stored[where] = now_ns()
        return await self._store.settle(key, *arguments)

    async def _all_of(self, iteration: int) -> None:
        self._waiting[iteration] += 1
        if self._waiting[iteration] == self._times.stored.shape[1]:
            self._complete[iteration].set()
        await self._complete[iteration].wait()
