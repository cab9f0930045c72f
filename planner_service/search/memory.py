"""Which layers recompute: enough of them that work flows, and no more than the order found needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from dip.costs import STORE
from dip.lowering import Phase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dip.lowering import Task
    from dip.memory import Way
    from dip.work import Work


def num_lean(way: Way) -> int:
    """Layers of a way that keep less than they could."""
    return sum(count for name, count in way if name != STORE)


def restore(work: Work, orders: Sequence[Sequence[Task]], ways: Sequence[Way], room: Sequence[int | None]) -> list[Way]:
    """Let as many lean layers store again as fit, the order of tasks kept; those that save most time a byte first.

    Parameters
    ----------
    work
        The stage tasks.
    orders
        For each rank its tasks in order.
    ways
        For each cell, how its layers run.
    room
        Bytes that activations may take on each rank; None: no limit.

    Returns
    -------
    list of Way
        The new ways.
    """
    chosen = list(ways)
    for rank, order in enumerate(orders):
        space = room[rank]
        if space is not None:
            _Rank(work, order, chosen, space).restore()
    return chosen


class _Rank:
    """What is held on one rank after each of its tasks starts."""

    def __init__(self, work: Work, order: Sequence[Task], ways: list[Way], space: int) -> None:
        self.work, self.ways = work, ways
        self.span: dict[int, tuple[int, int]] = {}
        begun: dict[int, int] = {}
        halved: set[int] = set()
        delta = np.zeros(len(order) + 1, dtype=np.int64)
        for place, (phase, cell) in enumerate(order):
            if not work.has_backward(cell):
                continue
            if phase == Phase.FORWARD:
                begun[cell] = place
            else:
                self.span[cell] = begun[cell], place + 1
                if phase != Phase.BACKWARD:
                    halved.add(cell)
        for cell, (first, last) in self.span.items():
            cost = work.cost(cell, ways[cell])
            size = max(cost.kept_bytes, cost.split_kept_bytes) if cell in halved else cost.kept_bytes
            delta[first] += size
            delta[last] -= size
        self.slack = space - np.cumsum(delta[:-1])

    def restore(self) -> None:
        """Give back room to the cells that gain most from it."""
        lean = [cell for cell in self.span if num_lean(self.ways[cell])]
        for cell in sorted(lean, key=lambda cell: (-self._gain(cell), cell)):
            first, last = self.span[cell]
            spare = int(self.slack[first:last].min())
            held = self.work.cost(cell, self.ways[cell]).kept_bytes
            for fewer in range(num_lean(self.ways[cell])):
                way = self.work.lean_ways.way(self.work.cell_kind[cell], fewer)
                more = self.work.cost(cell, way).kept_bytes - held
                if more <= spare:
                    self.ways[cell] = way
                    self.slack[first:last] -= more
                    break

    def _gain(self, cell: int) -> float:
        """Microseconds saved for each byte when all of a cell's layers store."""
        lean, store = self.work.cost(cell, self.ways[cell]), self.work.cost(cell)
        saved = lean.forward_us + lean.backward_us - store.forward_us - store.backward_us
        return saved / max(1, store.kept_bytes - lean.kept_bytes)
