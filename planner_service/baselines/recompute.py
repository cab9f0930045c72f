"""Which layers recompute when the order is fixed: as few as let every rank fit its memory.

On each rank the tasks' order says what is held when. All cells start with as many lean layers as they can have; then,
one after another, each gets back as many storing layers as still fit. Which cells go first makes a difference that no
rule foresees, so there are several.

A lean layer holds everything again between the halves of a split backward. So the backward of a cell with lean layers
may run whole, in the place of its input half, though the order splits it.
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
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


class Choice(NamedTuple):
    """How each cell's layers run, and the order, in which some backwards may have become whole."""

    ways: list[Way]
    orders: list[list[Task]]


def fitting_choices(work: Work, orders: Sequence[Sequence[Task]], *, lean_whole: bool = False) -> list[Choice]:
    """Choices that let every rank fit its memory, each with no lean layer that could store as well.

    Parameters
    ----------
    work
        The stage tasks.
    orders
        For each rank, its tasks in order.
    lean_whole
        Whether the backwards of cells with lean layers run whole.

    Returns
    -------
    list of Choice
        At least one; only one where nothing needs to be lean.

    Raises
    ------
    CannotFitError
        If a rank does not fit even with all its layers lean.
    """
    store: list[Way] = [()] * work.num_cells
    as_given = [list(order) for order in orders]
    limits = work.job.memory_bytes
    over = [bool(limit) and peak > limit for peak, limit in zip(peak_bytes(work, orders, store), limits, strict=True)]
    if not any(over):
        return [Choice(store, as_given)]
    ranks = [_Rank(work, order, r, lean_whole=lean_whole) for r, order in enumerate(orders) if over[r]]
    choices: list[Choice] = []
    for choose in (_Rank.most_time_a_byte_first, _Rank.most_time_a_held_byte_first, _Rank.evenly):
        lean = {cell: many for rank in ranks for cell, many in choose(rank).items()}
        ways = [work.lean_ways.way(kind, lean.get(cell, 0)) for cell, kind in enumerate(work.cell_kind)]
        whole = {cell for cell, many in lean.items() if many} if lean_whole else set[int]()
        choice = Choice(ways, [_with_whole(order, whole) for order in as_given])
        if choice not in choices:
            choices.append(choice)
    return choices


def _with_whole(order: Sequence[Task], whole: set[int]) -> list[Task]:
    """Return an order with the backwards of some cells whole, in the place of their input halves."""
    return [
        (Phase.BACKWARD, cell) if phase == Phase.BACKWARD_INPUT and cell in whole else (phase, cell)
        for phase, cell in order
        if phase != Phase.BACKWARD_WEIGHT or cell not in whole
    ]


class _Span(NamedTuple):
    """Places in a rank's order: of a cell's forward, of its input half (else past its end), and past its end."""

    first: int
    middle: int
    end: int


class _Rank:
    """What one rank holds at each place of its order, for any numbers of lean layers."""

    def __init__(self, work: Work, order: Sequence[Task], rank: int, *, lean_whole: bool) -> None:
        self.work, self.length, self.lean_whole = work, len(order), lean_whole
        self.spans = _spans(work, order)
        self.most = {cell: work.lean_ways.most(work.cell_kind[cell]) for cell in self.spans}
        limit, static = work.job.memory_bytes[rank], work.static_bytes[rank]
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

    def _line(self, cell: int, lean: int) -> Ints:
        """[tasks from its first to its last] What a cell holds while each of them runs."""
        cost = self.work.cost(cell, self.work.lean_ways.way(self.work.cell_kind[cell], lean))
        first, middle, end = self.spans[cell]
        line = np.full(end - first, cost.kept_bytes, dtype=np.int64)
        if lean and self.lean_whole:
            line[middle + 1 - first :] = 0
        else:
            line[middle - first :] = cost.split_kept_bytes
        return line

    def _held(self, lean: dict[int, int]) -> Ints:
        """[tasks] Bytes of activations while each task runs."""
        held = np.zeros(self.length, dtype=np.int64)
        for cell, (first, _, end) in self.spans.items():
            held[first:end] += self._line(cell, lean[cell])
        return held

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
            first, _, end = self.spans[cell]
            spare = slack[first:end] + self._line(cell, lean[cell])
            for fewer in range(lean[cell]):
                left = spare - self._line(cell, fewer)
                if left.min() >= 0:
                    slack[first:end] = left
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
