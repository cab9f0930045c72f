"""Memory ways on a fixed order by integer programming, a rank at a time (the paper's step c).

Every forward/backward pair of a rank takes one of its candidates, so that the rank holds no more than its room at any
time and all pairs together take least time. The program starts from a greedy choice; a rank of hundreds of pairs is
left at that, as no solver is done with it in the 10 ms that the paper allows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from ortools.sat.python import cp_model

from planner_service.baselines.paper.arrays import NEVER
from planner_service.baselines.paper.cover import cover

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from planner_service.baselines.paper.candidates import Candidates
    from planner_service.baselines.paper.problem import Base

    Ints = NDArray[np.int64]

GAP = 0.05
"""How far the time that is added may lie above the least: the paper's."""

EFFORT = 0.01
"""What one rank may cost the solver, in its own deterministic unit of time: about 10 ms."""

MOST_TERMS = 6000
"""Terms of all constraints up to which the solver gets the program: beyond, building it alone takes 10 ms."""

SCALES = 1 << 16
"""Steps in which the solver counts a rank's room; sizes are rounded up to them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pairs:
    """Forward/backward pairs of one rank that are alike: same candidates, held over the same peaks.

    Parameters
    ----------
    kind
        Kind of their cells.
    first, last
        First peak at which they are held, and the first one after it at which they are not.
    cells
        The cells.
    """

    kind: int
    first: int
    last: int
    cells: tuple[int, ...]


def choose_ways(base: Base, start: Ints, feasible: Ints) -> Ints:
    """Candidates of all cells, chosen rank by rank.

    Parameters
    ----------
    base
        The stage tasks.
    start
        [2n] Start of each task: the order of each rank.
    feasible
        [n] A choice that fits in this order.

    Returns
    -------
    ndarray
        [n] The choice; never slower in sum than ``feasible``.
    """
    chosen = feasible.copy()
    problem, n = base.problem, base.work.num_cells
    for rank in range(problem.num_ranks):
        room = int(problem.room[rank])
        if room < NEVER:
            mine = np.flatnonzero((problem.queue // 2 == rank) & (start >= 0))
            order = mine[np.argsort(start[mine], kind="stable")]
            pairs = pairs_of(order, n, base.candidates)
            for pair, places in zip(pairs, solve_rank(base.candidates, pairs, room, chosen), strict=True):
                chosen[list(pair.cells)] = places
    return chosen


def pairs_of(order: Ints, n: int, candidates: Candidates) -> list[Pairs]:
    """Pairs of a rank's order of tasks that have a choice or hold something.

    A peak is a forward that the next task of a pair does not follow up with another forward: what is held between two
    backwards grows until then.
    """
    begun: dict[int, int] = {}
    alike: dict[tuple[int, int, int], list[int]] = {}
    paired = {task - n for task in order.tolist() if task >= n}
    peak, rising = 0, False
    for task in order.tolist():
        if task < n:
            if task in paired:
                begun[task] = peak
                rising = True
            continue
        if rising:
            peak, rising = peak + 1, False
        cell = task - n
        alike.setdefault((int(candidates.kind[cell]), begun[cell], peak), []).append(cell)
    return [Pairs(kind=k, first=f, last=t, cells=tuple(cells)) for (k, f, t), cells in alike.items()]


def solve_rank(candidates: Candidates, pairs: Sequence[Pairs], room: int, feasible: Ints) -> list[list[int]]:
    """Candidates of the cells of each pair that add little time and stay within the room.

    Where the solver is done within ``EFFORT``, the time added is at most ``GAP`` above the least for sizes rounded up;
    else it is the best that the solver or the greedy choice found.

    Parameters
    ----------
    candidates
        Ways of all kinds.
    pairs
        The pairs of one rank.
    room
        Bytes that they may hold at any time.
    feasible
        [n] A choice that fits.
    """
    given = _better(candidates, pairs, room, [feasible[list(pair.cells)].tolist() for pair in pairs])
    if not any(map(any, given)):
        return given
    terms = sum((pair.last - pair.first) * len(candidates.ways[pair.kind]) for pair in pairs)
    if terms > MOST_TERMS:
        return given
    model = _Model(candidates, pairs, room)
    model.hint(given)
    found = model.solve()
    return found if found and added_us(candidates, pairs, found) < added_us(candidates, pairs, given) else given


def added_us(candidates: Candidates, pairs: Sequence[Pairs], places: Sequence[Sequence[int]]) -> int:
    """Time that a choice takes above that of storing everything."""
    total = candidates.forward_us + candidates.backward_us
    return sum(
        int(total[pair.kind, k] - total[pair.kind, 0])
        for pair, of_pair in zip(pairs, places, strict=True)
        for k in of_pair
    )


def _better(candidates: Candidates, pairs: Sequence[Pairs], room: int, given: list[list[int]]) -> list[list[int]]:
    """The greedy choice, or the given one where that takes less time."""
    counts = [len(pair.cells) for pair in pairs]
    kind, first, last = (
        np.repeat(np.array([getattr(pair, name) for pair in pairs], dtype=np.int64), counts)
        for name in ("kind", "first", "last")
    )
    total = candidates.forward_us + candidates.backward_us
    chosen = cover(first, last, total[kind], candidates.kept_bytes[kind], room).tolist()
    if not chosen or chosen[0] < 0:
        return given
    ends = np.cumsum(counts).tolist()
    greedy = [chosen[end - count : end] for end, count in zip(ends, counts, strict=True)]
    return min(greedy, given, key=lambda places: added_us(candidates, pairs, places))


class _Model:
    """Counts of each candidate among pairs that are alike."""

    def __init__(self, candidates: Candidates, pairs: Sequence[Pairs], room: int) -> None:
        self.candidates, self.pairs = candidates, pairs
        unit = -(-room // SCALES) or 1
        self.room, self.kept = room // unit, -(-candidates.kept_bytes // unit)
        self.model = cp_model.CpModel()
        self.counts = [
            [self.model.new_int_var(0, len(pair.cells), "") for _ in candidates.ways[pair.kind]] for pair in pairs
        ]
        self.choose_one_each()
        self.hold_no_more_than_room()
        self.minimize_added_time()

    def choose_one_each(self) -> None:
        """Every pair runs in one way: for each class i, sum over k of x[i, k] = pairs of class i."""
        for pair, row in zip(self.pairs, self.counts, strict=True):
            self.model.add(sum(row) == len(pair.cells))

    def hold_no_more_than_room(self) -> None:
        """At each peak p: sum over the classes i held there and k of bytes[i, k] * x[i, k] <= room."""
        at_peak: dict[int, list[int]] = {}
        for i, pair in enumerate(self.pairs):
            for peak in range(pair.first, pair.last):
                at_peak.setdefault(peak, []).append(i)
        kept = self.kept
        for classes in at_peak.values():
            variables = [variable for i in classes for variable in self.counts[i]]
            sizes = [int(kept[self.pairs[i].kind, k]) for i in classes for k in range(len(self.counts[i]))]
            if sum(len(self.pairs[i].cells) * int(kept[self.pairs[i].kind, 0]) for i in classes) > self.room:
                self.model.add(cp_model.LinearExpr.weighted_sum(variables, sizes) <= self.room)

    def minimize_added_time(self) -> None:
        """Minimize the sum over i and k of (time[i, k] - time[i, 0]) * x[i, k]."""
        total = self.candidates.forward_us + self.candidates.backward_us
        variables = [variable for row in self.counts for variable in row]
        added = [
            int(total[pair.kind, k] - total[pair.kind, 0])
            for pair, row in zip(self.pairs, self.counts, strict=True)
            for k in range(len(row))
        ]
        self.model.minimize(cp_model.LinearExpr.weighted_sum(variables, added))

    def hint(self, given: Sequence[Sequence[int]]) -> None:
        """Start from a choice that fits."""
        for row, places in zip(self.counts, given, strict=True):
            for k, variable in enumerate(row):
                self.model.add_hint(variable, sum(min(place, len(row) - 1) == k for place in places))

    def solve(self) -> list[list[int]] | None:
        """Candidates of each class's cells, those that save least first; None where the solver found none in time."""
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.relative_gap_limit = GAP
        solver.parameters.max_deterministic_time = EFFORT
        if solver.solve(self.model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None
        return [[k for k, variable in enumerate(row) for _ in range(solver.value(variable))] for row in self.counts]
