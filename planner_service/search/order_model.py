"""CP-SAT on the order of tasks: what is free in a relaxed schedule moves, the rest gives way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from ortools.sat.python import cp_model

from planner_service.compiling import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from planner_service.domain.graph import Ints, TaskGraph
    from planner_service.search.relaxation import Relaxation

SEEDS = 1 << 31
"""Number of different seeds that the solver takes; the contract's have 63 bits."""

WEIGHT = 16
"""How much the end of the schedule counts against the mean of the ends of all ranks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OrderResult:
    """What the solver found.

    Parameters
    ----------
    start
        [3n] Earliest starts in the order found; None where it is no better than the one of now.
    bound_us
        No order of what is free, the rest in its order, ends earlier.
    closed
        Whether the solver came to its end: there is nothing better.
    effort
        What it spent, in its own unit.
    """

    start: Ints | None
    bound_us: int
    closed: bool
    effort: float


class OrderModel:
    """Starts of the nodes of a relaxation.

    Parameters
    ----------
    graph
        The tasks, all ways decided.
    start
        [3n] Earliest starts of the schedule that was relaxed; it keeps within the memory of all ranks.
    relaxation
        What is free in it.
    all_ends
        Whether an order in which the schedule ends as it does now, but some ranks earlier, is better.
    """

    def __init__(self, graph: TaskGraph, start: Ints, relaxation: Relaxation, *, all_ends: bool = True) -> None:
        self.graph, self.incumbent, self.relaxed = graph, start, relaxation
        self.nodes: list[int] = relaxation.nodes.tolist()
        self.place = {task: i for i, task in enumerate(self.nodes)}
        self.makespan = int((start + graph.duration)[start >= 0].max())
        self.duration: list[int] = graph.duration[relaxation.nodes].tolist()
        self.rank: list[int] = graph.rank[relaxation.nodes % graph.num_cells].tolist()
        self.model = cp_model.CpModel()
        latest = self.makespan - relaxation.tail - graph.duration[relaxation.nodes]
        self.begin = [
            self.model.new_int_var(first, last, "")
            for first, last in zip(relaxation.head.tolist(), latest.tolist(), strict=True)
        ]
        for task, begin in zip(self.nodes, self.begin, strict=True):
            self.model.add_hint(begin, int(start[task]))
        self.respect_precedence()
        self.run_one_at_a_time()
        self.stay_within_memory()
        if all_ends:
            self.minimize_ends()
        else:
            self.minimize_end()

    def respect_precedence(self) -> None:
        """A node starts when what it waits for is there: s[j] >= s[i] + d[i] + lag[i, j]."""
        for i, j, lag in self.relaxed.arcs.tolist():
            self.model.add(self.begin[j] >= self.begin[i] + (self.duration[i] + lag))

    def run_one_at_a_time(self) -> None:
        """A rank runs one task at a time: the intervals [s[i], s[i] + d[i]) of its nodes that may move are disjoint."""
        by_rank: dict[int, list[cp_model.IntervalVar]] = {}
        for i in np.flatnonzero(self.relaxed.movable).tolist():
            interval = self.model.new_fixed_size_interval_var(self.begin[i], self.duration[i], "")
            by_rank.setdefault(self.rank[i], []).append(interval)
        for intervals in by_rank.values():
            self.model.add_no_overlap(intervals)

    def stay_within_memory(self) -> None:
        """What a rank holds stays within its room: for all t, sum of bytes of holdings a <= t < b is <= room.

        A cell holds ``kept`` from the start of its forward to the end of its backward, or to the start of its input
        half, and ``between`` from then to the end of the weight half.
        """
        moving = {self.rank[i] for i in np.flatnonzero(self.relaxed.movable).tolist()}
        for rank in sorted(moving):
            room = int(self.graph.room[rank])
            if room < 0:
                continue
            holdings = _Holdings(self, rank)
            sizes = holdings.sizes
            if sum(sizes) > room:
                self.model.add_cumulative(holdings.intervals, sizes, room)

    def minimize_end(self) -> None:
        """Minimize the end of the schedule: end >= s[i] + d[i] + tail[i] for each node."""
        end = self.model.new_int_var(self.relaxed.others_us, self.makespan, "")
        self.model.add_hint(end, self.makespan)
        for begin, done, tail in zip(self.begin, self.duration, self.relaxed.tail.tolist(), strict=True):
            self.model.add(end >= begin + (done + tail))
        self.worth_of_end, self.now = 1, self.makespan
        self.model.minimize(end)

    def minimize_ends(self) -> None:
        """Minimize the end of the schedule, and a little the ends that each rank brings about.

        end[r] >= s[i] + d[i] + tail[i] for each node i of rank r, end >= end[r]; minimize ``WEIGHT * ranks * end + sum
        of end[r]``. Where several ranks hold the schedule up alike, each may get better alone, and the next
        neighbourhood finds it so.
        """
        end = self.model.new_int_var(self.relaxed.others_us, self.makespan, "")
        self.model.add_hint(end, self.makespan)
        after = np.array(self.duration, dtype=np.int64) + self.relaxed.tail
        reached = self.incumbent[self.relaxed.nodes] + after
        ranks = np.array(self.rank)
        ends: list[cp_model.IntVar] = []
        self.now = 0
        for rank in np.unique(ranks).tolist():
            ends.append(self.model.new_int_var(0, self.makespan, ""))
            self.model.add(end >= ends[-1])
            for i in np.flatnonzero(ranks == rank).tolist():
                self.model.add(ends[-1] >= self.begin[i] + int(after[i]))
            latest = int(reached[ranks == rank].max())
            self.model.add_hint(ends[-1], latest)
            self.now += latest
        worth = WEIGHT * max(1, len(ends))
        self.now += worth * self.makespan
        self.worth_of_end = worth + len(ends)  # no rank ends later than the schedule
        self.model.minimize(worth * end + cp_model.LinearExpr.sum(ends))

    def solve(self, *, seconds: float, effort: float, seed: int, thorough: bool = False) -> OrderResult:
        """Search for a better order.

        Parameters
        ----------
        seconds, effort
            Most to spend: of time, and of the solver's own unit, which no clock decides.
        seed
            Of the solver.
        thorough
            Whether preparations that pay in long searches are worth it.
        """
        solver = cp_model.CpSolver()
        parameters = solver.parameters
        if seconds < float("inf"):
            parameters.max_time_in_seconds = max(0.001, seconds)
        parameters.max_deterministic_time = effort
        parameters.num_workers = 1
        parameters.random_seed = seed % SEEDS
        if not thorough:
            parameters.cp_model_probing_level = parameters.symmetry_level = 0
        status = solver.solve(self.model)
        known = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
        better = known and solver.objective_value < self.now
        return OrderResult(
            start=self._starts([solver.value(begin) for begin in self.begin]) if better else None,
            bound_us=-int(-solver.best_objective_bound // self.worth_of_end) if known else 0,
            closed=status == cp_model.OPTIMAL,
            effort=solver.response_proto.deterministic_time,
        )

    def _starts(self, begin: list[int]) -> Ints:
        """Earliest starts of all tasks when nodes follow each other as they begin."""
        n = self.graph.num_cells
        at = np.full(3 * n, -1, dtype=np.int64)
        at[self.relaxed.nodes] = begin
        orders = []
        for rank, fixed in enumerate(self.relaxed.sequence):
            mine = np.flatnonzero(self.relaxed.free & (np.array(self.rank) == rank))
            ranges = zip(mine.tolist(), self.relaxed.low[mine].tolist(), self.relaxed.high[mine].tolist(), strict=True)
            before = [low + int(np.count_nonzero(at[fixed[low:high]] < begin[i])) for i, low, high in ranges]
            tasks = np.concatenate([fixed, self.relaxed.nodes[mine]])
            place = np.concatenate([2 * np.arange(len(fixed)) + 1, 2 * np.array(before, dtype=np.int64)])
            orders.append(tasks[np.lexsort((at[tasks], place))])
        ends = np.cumsum([0, *map(len, orders)])
        return earliest_starts(self.graph, np.concatenate(orders), ends)


class _Holdings:
    """What a rank holds, as intervals: of each cell that a node belongs to, and of all others together."""

    def __init__(self, model: OrderModel, rank: int) -> None:
        self.of = model
        self.intervals: list[cp_model.IntervalVar] = []
        self.sizes: list[int] = []
        graph, incumbent, n = model.graph, model.incumbent, model.graph.num_cells
        fixed = model.relaxed.sequence[rank]
        is_node = np.zeros(3 * n, dtype=np.bool_)
        is_node[model.relaxed.nodes] = True
        # What a fixed task that is no node takes or gives back counts from the next one on that is.
        self.anchors: list[int | None] = [model.place[task] for task in fixed[is_node[fixed]].tolist()]
        self.anchors.append(None)
        self.anchor = np.full(3 * n, -1, dtype=np.int64)
        self.anchor[fixed] = np.cumsum(is_node[fixed]) - is_node[fixed]
        cells = np.flatnonzero((graph.rank == rank) & graph.has_backward)
        halves = incumbent[2 * n + cells] >= 0
        touched = is_node[cells] | is_node[n + cells] | is_node[2 * n + cells]
        for cell, split in zip(cells[touched].tolist(), halves[touched].tolist(), strict=True):
            kept = int(graph.kept[cell])
            if split:
                self._add(self._start(cell), self._start(n + cell), kept)
                self._add(self._start(n + cell), self._end(2 * n + cell), int(graph.between[cell]))
            else:
                self._add(self._start(cell), self._end(n + cell), kept)
        self._add_all(cells[~touched], halves[~touched])

    def _add_all(self, cells: Ints, halves: NDArray[np.bool_]) -> None:
        """Add cells without nodes, those together that begin and end at the same nodes."""
        n, many = self.of.graph.num_cells, len(self.anchors)
        begun, given = self.anchor[cells], self.anchor[n + cells]
        split = cells[halves]
        firsts = np.concatenate([begun, self.anchor[n + split]])
        lasts = np.concatenate([given, self.anchor[2 * n + split]])
        sizes = np.concatenate([self.of.graph.kept[cells], self.of.graph.between[split]])
        keys, which = np.unique(firsts * many + lasts, return_inverse=True)
        sums = np.zeros(len(keys), dtype=np.int64)
        np.add.at(sums, which, sizes)
        for key, size in zip(keys.tolist(), sums.tolist(), strict=True):
            if key // many < key % many:
                self._add(self._at(key // many), self._at(key % many), size)

    def _add(self, first: tuple[cp_model.LinearExprT, int], last: tuple[cp_model.LinearExprT, int], size: int) -> None:
        if not size:
            return
        model = self.of.model
        length = model.new_int_var(0, self.of.makespan, "")
        model.add_hint(length, last[1] - first[1])
        self.intervals.append(model.new_interval_var(first[0], length, last[0], ""))
        self.sizes.append(size)

    def _start(self, task: int) -> tuple[cp_model.LinearExprT, int]:
        place = self.of.place.get(task)
        return self._at(int(self.anchor[task])) if place is None else (self.of.begin[place], self._now(place))

    def _end(self, task: int) -> tuple[cp_model.LinearExprT, int]:
        place = self.of.place.get(task)
        if place is None:
            return self._at(int(self.anchor[task]))
        return self.of.begin[place] + self.of.duration[place], self._now(place) + self.of.duration[place]

    def _at(self, anchor: int) -> tuple[cp_model.LinearExprT, int]:
        place = self.anchors[anchor]
        return (self.of.makespan, self.of.makespan) if place is None else (self.of.begin[place], self._now(place))

    def _now(self, place: int) -> int:
        return int(self.of.incumbent[self.of.nodes[place]])


@kernel
def earliest_starts(graph: TaskGraph, tasks: Ints, ends: Ints) -> Ints:
    """Earliest starts when each rank runs its tasks in the given order, which waits nowhere for itself.

    Parameters
    ----------
    graph
        The tasks, all ways decided.
    tasks
        Those of each rank in order, one rank after another.
    ends
        [ranks + 1] Those of rank r are ``tasks[ends[r] : ends[r + 1]]``.

    Returns
    -------
    Ints
        [3n] Starts; -1 for tasks that are in no order.
    """
    n = graph.rank.shape[0]
    start = np.full(3 * n, -1, dtype=np.int64)
    missing = np.ones(3 * n, dtype=np.int64)  # a backward waits for its forward, a weight half for its input half
    missing[:n] = graph.inputs
    missing[n : 2 * n] += graph.gradients
    ready = np.zeros(3 * n, dtype=np.int64)
    free = np.zeros(len(ends) - 1, dtype=np.int64)
    at = ends[:-1].copy()
    going = True
    while going:
        going = False
        for r in range(len(ends) - 1):
            while at[r] < ends[r + 1] and missing[tasks[at[r]]] == 0:
                going = True
                task = tasks[at[r]]
                at[r] += 1
                start[task] = max(free[r], ready[task])
                end = start[task] + graph.duration[task]
                free[r] = end
                c = task % n
                if task < 2 * n:
                    ready[n + task] = max(ready[n + task], end)
                    missing[n + task] -= 1
                if task < n:
                    for k in range(graph.first[c], graph.first[c + 1]):
                        later = graph.consumer[k]
                        ready[later] = max(ready[later], end + graph.hop[k])
                        missing[later] -= 1
                elif task < 2 * n:
                    for k in range(graph.back_first[c], graph.back_first[c + 1]):
                        later = n + graph.producer[k]
                        ready[later] = max(ready[later], end + graph.back_hop[k])
                        missing[later] -= 1
    return start
