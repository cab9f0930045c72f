"""Which layers recompute when the order is fixed: as few as let every rank fit its memory.

On each rank the tasks' order says what is held when. All cells start with as many lean layers as they can have; then,
one after another, each gets back as many storing layers as still fit. Which cells go first makes a difference that no
rule foresees, so there are several.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from dip.errors import CannotFitError
from dip.lowering import Phase, peak_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dip.lowering import Task
    from dip.memory import Way
    from dip.work import Work


def fitting_choices(work: Work, orders: Sequence[Sequence[Task]]) -> list[list[Way]]:
    """Choices of ways that let every rank fit its memory, each with no lean layer that could store as well.

    Parameters
    ----------
    work
        The stage tasks.
    orders
        For each rank, its tasks in order.

    Returns
    -------
    list of list of Way
        At least one choice of a way for each cell; only one where nothing needs to be lean.

    Raises
    ------
    CannotFitError
        If a rank does not fit even with all its layers lean.
    """
    store: list[Way] = [()] * work.num_cells
    limits = work.job.memory_bytes
    over = [bool(limit) and peak > limit for peak, limit in zip(peak_bytes(work, orders, store), limits, strict=True)]
    if not any(over):
        return [store]
    ranks = [_Rank(work, order, limits[r], work.static_bytes[r], r) for r, order in enumerate(orders) if over[r]]
    choices = []
    for choose in (_Rank.most_time_a_byte_first, _Rank.most_time_a_held_byte_first, _Rank.evenly):
        ways = list(store)
        for rank in ranks:
            for cell, lean in choose(rank).items():
                ways[cell] = work.lean_ways.way(work.cell_kind[cell], lean)
        if ways not in choices:
            choices.append(ways)
    return choices


class _Span(NamedTuple):
    """Places in a rank's order: of a cell's forward, of its input half (else past its end), and past its end."""

    first: int
    middle: int
    end: int


class _Rank:
    """What one rank holds at each place of its order, for any numbers of lean layers."""

    def __init__(self, work: Work, order: Sequence[Task], limit: int, static: int, rank: int) -> None:
        self.work, self.length = work, len(order)
        self.spans = _spans(work, order)
        self.most = {cell: work.lean_ways.most(work.cell_kind[cell]) for cell in self.spans}
        self.room = limit - static
        needed = static + int(self._held(self.most).max(initial=0))
        if needed > limit:
            raise CannotFitError(rank=rank, needed_bytes=needed, available_bytes=limit)

    def most_time_a_byte_first(self) -> dict[int, int]:
        """Lean layers of each cell when those store first that save most time for a byte."""
        return self._restored(self.most, self._gain)

    def most_time_a_held_byte_first(self) -> dict[int, int]:
        """The same, a byte counted for as long as it is held, in tasks."""
        return self._restored(
            self.most, lambda cell: self._gain(cell) / (self.spans[cell].end - self.spans[cell].first)
        )

    def evenly(self) -> dict[int, int]:
        """Lean layers when all cells first have the same number of them, or all they can have."""
        low, high = 0, max(self.most.values(), default=0)
        while low < high:
            middle = (low + high) // 2
            if self._held(self._at_most(middle)).max(initial=0) <= self.room:
                high = middle
            else:
                low = middle + 1
        return self._restored(self._at_most(high), self._gain)

    def _at_most(self, lean: int) -> dict[int, int]:
        return {cell: min(lean, most) for cell, most in self.most.items()}

    def _bytes(self, cell: int, lean: int) -> tuple[int, int]:
        """What a cell holds before its input half, and from then on."""
        cost = self.work.cost(cell, self.work.lean_ways.way(self.work.cell_kind[cell], lean))
        return cost.kept_bytes, cost.split_kept_bytes

    def _held(self, lean: dict[int, int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """[tasks] Bytes of activations while each task runs."""
        change = np.zeros(self.length + 1, dtype=np.int64)
        for cell, (first, middle, end) in self.spans.items():
            kept, split = self._bytes(cell, lean[cell])
            change[first] += kept
            change[middle] -= kept
            if middle < end:
                change[middle] += split
                change[end] -= split
        return np.cumsum(change[:-1])

    def _gain(self, cell: int) -> float:
        """Microseconds saved for each byte when all of a cell's layers store."""
        work = self.work
        lean, store = work.cost(cell, work.lean_ways.way(work.cell_kind[cell], self.most[cell])), work.cost(cell)
        saved = lean.forward_us + lean.backward_us - store.forward_us - store.backward_us
        return saved / max(1, store.kept_bytes - lean.kept_bytes)

    def _restored(self, lean: dict[int, int], worth: Callable[[int], float]) -> dict[int, int]:
        """Let cells store again, those of most worth first, as many layers of each as fit."""
        lean = dict(lean)
        slack = self.room - self._held(lean)
        for cell in sorted(self.spans, key=lambda cell: (-worth(cell), cell)):
            first, middle, end = self.spans[cell]
            kept, split = self._bytes(cell, lean[cell])
            before = int(slack[first:middle].min(initial=2**62))
            after = int(slack[middle:end].min(initial=2**62))
            for fewer in range(lean[cell]):
                kept_then, split_then = self._bytes(cell, fewer)
                if kept_then - kept <= before and split_then - split <= after:
                    slack[first:middle] -= kept_then - kept
                    slack[middle:end] -= split_then - split
                    lean[cell] = fewer
                    break
        return lean


def _spans(work: Work, order: Sequence[Task]) -> dict[int, _Span]:
    first: dict[int, int] = {}
    middle: dict[int, int] = {}
    end: dict[int, int] = {}
    for place, (phase, cell) in enumerate(order):
        if not work.has_backward(cell):
            continue
        if phase == Phase.FORWARD:
            first[cell] = place
            continue
        end[cell] = place + 1
        if phase == Phase.BACKWARD_INPUT:
            middle[cell] = place
    return {cell: _Span(first[cell], middle.get(cell, end[cell]), end[cell]) for cell in first}
