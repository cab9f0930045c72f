"""Memory that binds takes time: what cells hold, and for how long, needs room that only slower strategies save.

Theorem. On one rank, let no task start before h or end after T - q, and let M(t) be the bytes that cells hold at t.

- A cell holds what it keeps at least from the start of its forward to the end of its backward: no shorter than its
  forward, the longest chain from there to its gradient, and its backward, each at its fastest. Bytes times that is its
  area; the integral of M is at least the sum of all areas.
- M(t) is at most the room. It is at most what forwards can have started by t: all of these but one have ended, one
  after another, since h. And it is at most what backwards can have to end after t: all but one of them start after t,
  and end by T - q. So the integral of M is at most that of the least of the three, the *capacity*.
- Where the areas with all layers at their fastest exceed the capacity, layers must save the rest by strategies that
  take more time. Choosing for each layer any mixture of strategies, those that save most area for their time first, is
  a relaxation (the fractional knapsack problem), and how much longer the rank then works at least. If it cannot end by
  T - q, no schedule is as short as T.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from dip.errors import CannotFitError
from dip.fallback import activation_room

from planner_service.compiling import kernel
from planner_service.search.bounds.strategies import Options, most_held, options_of, savings

if TYPE_CHECKING:
    from dip.work import Work
    from numpy.typing import NDArray

    from planner_service.domain.graph import Ints
    from planner_service.search.bounds.tasks import FastestTasks

    Floats = NDArray[np.float64]

ROUNDED_US = 3.01
"""Most that rounding can take away from what a cell takes beyond its least time: once a phase."""

ROUNDED_BYTES = 1e-6
"""Most that rounding takes away from what a cell keeps."""

SLACK = 1e-9
"""Share of an area that sums of floats may be off."""


def memory_bound_us(work: Work, tasks: FastestTasks, *, incumbent_us: int) -> int:
    """Largest bound of all ranks from what they can hold, at most ``incumbent_us``; 0 where memory has no limit."""
    if work.forward_only or not any(work.job.memory_bytes):
        return 0
    try:
        room = activation_room(work.job, work.chunks)
    except CannotFitError:
        return 0
    options, waits_us, bound = options_of(work), _from_forward_to_gradient(tasks), 0
    for rank, size in enumerate(room):
        mine = tasks.of_rank[tasks.first_of_rank[rank] : tasks.first_of_rank[rank + 1]]
        if size is None or not len(mine):
            continue
        on_rank = Holding.of(work, tasks, options, waits_us, mine, size)
        bound = max(bound, on_rank.bound_us(incumbent_us))
    return bound


@dataclass(frozen=True, kw_only=True, slots=True)
class Holding:
    """What the cells of one rank hold.

    Parameters
    ----------
    load_us, outside_us
        Least time of all tasks, and time that the rank cannot use: before its first task and after its last.
    num_cells
        How many cells hold anything.
    area
        Bytes times microseconds that they hold with all layers at their fastest.
    saved, slower_us
        [k] All that leaner strategies save, and take, up to each step: the best steps first.
    filling, draining
        [k, 2] Microseconds since the first forward, or until the end, and bytes held at most; linear in between, the
        room from the last of them on.
    """

    load_us: int
    outside_us: int
    num_cells: int
    area: float
    saved: Floats
    slower_us: Floats
    filling: Floats
    draining: Floats

    @classmethod
    def of(cls, work: Work, tasks: FastestTasks, options: Options, waits_us: Ints, mine: Ints, room: int) -> Holding:
        """What the cells of a rank hold, whose tasks are ``mine`` and whose room is so many bytes."""
        n, duration = work.num_cells, tasks.duration
        cells = mine[mine < n]
        cells = cells[duration[n + cells] > 0]
        kind = np.array(work.cell_kind, dtype=np.int64)[cells]
        forward, gradient, rest = duration[cells], duration[n + cells], duration[2 * n + cells]
        before, last = forward + waits_us[cells], gradient + rest
        area, saved, slower_us = savings(options, kind, before, last)
        best_first = np.argsort(slower_us / np.maximum(saved, 1e-30), kind="stable")
        held = most_held(options, kind)
        return cls(
            load_us=int(duration[mine].sum()),
            outside_us=int(tasks.head[mine].min() + tasks.tail[mine].min()),
            num_cells=len(cells),
            area=area - ROUNDED_BYTES * float((before + last).sum()),
            saved=np.concatenate([[0.0], np.cumsum(saved[best_first])]),
            slower_us=np.concatenate([[0.0], np.cumsum(slower_us[best_first])]),
            filling=_filling(forward, held, room),
            draining=_filling(np.where(_may_halve(work)[cells], np.maximum(rest, 1), gradient), held, room),
        )

    def bound_us(self, incumbent_us: int) -> int:
        """Shortest length, up to that of the incumbent, that is not refuted."""
        low, high = self.load_us + self.outside_us, incumbent_us
        while low < high:
            length = (low + high) // 2
            if self.refutes(length):
                low = length + 1
            else:
                high = length
        return high

    def refutes(self, length_us: int) -> bool:
        """Whether no schedule is so short."""
        inside = length_us - self.outside_us
        excess = self.area * (1 - SLACK) - self.capacity(inside) * (1 + SLACK)
        if excess > self.saved[-1] * (1 + SLACK):
            return True
        slower_us = float(np.interp(excess, self.saved, self.slower_us)) - ROUNDED_US * self.num_cells
        return self.load_us + max(0.0, slower_us) > inside

    def capacity(self, inside_us: float) -> float:
        """Bytes times microseconds that fit into so much time: any time may part what is filled and what is drained."""
        fill, drain = self.filling[-1, 0], self.draining[-1, 0]
        parting = inside_us * fill / (fill + drain) if fill + drain else 0.0
        return _under(self.filling, parting) + _under(self.draining, inside_us - parting)


def _may_halve(work: Work) -> NDArray[np.bool_]:
    """Cells [n] that may hold something for the sake of a weight half alone, the rest of their backward behind them."""
    halves = [work.job.split_backward and not module.frozen for module in work.job.modules]
    return np.array([halves[chunk.module] for chunk in work.cell_chunk], dtype=np.bool_)


def _filling(duration: Ints, held: Floats, room: int) -> Floats:
    """Bytes held at most when each cell takes so long, one after another, and one is there at once: [k, 2], concave."""
    if not len(held):
        return np.zeros((1, 2))
    best_first = np.argsort(-held / duration, kind="stable")
    time_us = np.concatenate([[0.0], np.cumsum(duration[best_first])])
    size = held.max() + np.concatenate([[0.0], np.cumsum(held[best_first])])
    full = int(np.searchsorted(size, room))
    if full == len(size):
        return np.stack([time_us, size], axis=1)
    last = float(np.interp(room, size, time_us)) if full else 0.0
    return np.stack([np.append(time_us[:full], last), np.append(size[:full], float(room))], axis=1)


def _under(curve: Floats, time_us: float) -> float:
    """Integral of a curve from 0 on; it stays at its last value."""
    at = np.append(curve[curve[:, 0] < time_us, 0], max(0.0, time_us))
    return float(np.trapezoid(np.interp(at, curve[:, 0], curve[:, 1]), at))


@kernel
def _from_forward_to_gradient(tasks: FastestTasks) -> Ints:
    """Longest chain [n] between the end of each cell's forward and the start of its gradient, through one consumer."""
    n = tasks.duration.shape[0] // 3
    waits = np.zeros(n, dtype=np.int64)
    for task in tasks.order[::-1]:
        if task >= n or tasks.duration[n + task] == 0:
            continue
        for arc in range(tasks.first[task], tasks.first[task + 1]):
            later = tasks.successor[arc]
            if later < n and tasks.duration[n + later] > 0:
                chain = tasks.duration[later] + waits[later] + tasks.duration[n + later] + 2 * tasks.hop[arc]
                waits[task] = max(waits[task], chain)
    return waits
