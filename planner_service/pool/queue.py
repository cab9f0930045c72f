"""Which solve comes next: jobs in turn, and within a job the nearest iteration."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import OrderedDict, deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from planner_service.pool.solve import Solve

_Heap = list[tuple[tuple[int, ...], int, "Solve"]]


class SolveQueue:
    """Solves that wait for a worker, in one lane a job. For use from one event loop."""

    def __init__(self) -> None:
        self._lanes: OrderedDict[str, _Heap] = OrderedDict()  # the lane whose turn it is comes first
        self._arrivals = itertools.count()
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._on_getter: Callable[[], None] | None = None

    @property
    def num_getters(self) -> int:
        """How many wait in `get` for whom nothing has been put yet."""
        return sum(not waiter.done() for waiter in self._waiters)

    def on_getter(self, listener: Callable[[], None]) -> None:
        """Call `listener` when somebody begins to wait in `get`."""
        self._on_getter = listener

    def __len__(self) -> int:
        """How many wait, those done meanwhile included."""
        return sum(map(len, self._lanes.values()))

    def put(self, solve: Solve) -> None:
        """Add a solve; after those of its lane that have the same order."""
        heap = self._lanes.setdefault(solve.lane, [])
        heapq.heappush(heap, (solve.order, next(self._arrivals), solve))
        self._wake_one()

    async def get(self) -> Solve:
        """Take the next solve that is not done yet, waiting for one. A cancelled get takes nothing."""
        while (solve := self._pop()) is None:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            if self._on_getter is not None:
                self._on_getter()
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake_one()
                raise
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
        return solve

    def drain(self) -> Iterator[Solve]:
        """Take everything."""
        while (solve := self._pop()) is not None:
            yield solve

    def _pop(self) -> Solve | None:
        while self._lanes:
            lane, heap = next(iter(self._lanes.items()))
            _, _, solve = heapq.heappop(heap)
            if heap:
                self._lanes.move_to_end(lane)
            else:
                del self._lanes[lane]
            if not solve.done:
                return solve
        return None

    def _wake_one(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
