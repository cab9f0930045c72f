"""CP-SAT on the interleaving: the whole of a small instance, with proof; a window in time of a large one.

Tasks outside the window keep their order. What lies before it stays where it is; what comes after it enters as a tail
of each task inside: the longest chain from its end to the end of the schedule.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from ortools.sat.python import cp_model

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from planner_service.domain.graph import Ints, TaskGraph


SEEDS = 1 << 31
"""Number of different seeds that the solver takes; the contract's have 63 bits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExactResult:
    """What the solver found.

    Parameters
    ----------
    start
        [3n] A start of each task in the order found: earliest times are the caller's to compute. None: no better one.
    bound_us
        No order of the free tasks ends earlier, the others as they were.
    """

    start: Ints | None
    bound_us: int


class WindowModel:
    """The free tasks of a schedule as intervals.

    Parameters
    ----------
    graph
        The tasks.
    start
        [3n] Starts of the incumbent; -1 where there is no task.
    free
        [3n] Tasks that may move: those that start in some window of time.
    """

    def __init__(self, graph: TaskGraph, start: Ints, free: NDArray[np.bool_]) -> None:
        self.graph, self.incumbent = graph, start
        self.tasks = np.flatnonzero(free).tolist()
        self.inside = set(self.tasks)
        self.makespan = int((start + graph.duration)[start >= 0].max())
        self.first_us = int(start[self.tasks].min())
        self.later = successors(graph)
        self.rank_before, self.rank_after = self._neighbours()
        self.tail = self._tails()
        self.model = cp_model.CpModel()
        self.begin = {
            task: self.model.new_int_var(self._release(task), self.makespan - self._after(task), "")
            for task in self.tasks
        }
        self.end = self.model.new_int_var(0, self.makespan, "")
        self.respect_precedence()
        self.run_one_at_a_time()
        self.stay_within_memory()
        self.minimize_end()

    def _rank(self, task: int) -> int:
        return int(self.graph.rank[task % self.graph.num_cells])

    def _neighbours(self) -> tuple[dict[int, int], dict[int, list[int]]]:
        """When each rank is done with what lies before the window, and its tasks after it, in order."""
        done: dict[int, int] = {}
        after: dict[int, list[int]] = {}
        scheduled = np.flatnonzero(self.incumbent >= 0)
        for task in scheduled[np.argsort(self.incumbent[scheduled], kind="stable")].tolist():
            if task in self.inside:
                continue
            rank = self._rank(task)
            if self.incumbent[task] < self.first_us:
                done[rank] = int(self.incumbent[task] + self.graph.duration[task])
            else:
                after.setdefault(rank, []).append(task)
        return done, after

    def _release(self, task: int) -> int:
        return max(self.first_us, self.rank_before.get(self._rank(task), 0))

    def _after(self, task: int) -> int:
        return int(self.graph.duration[task] + self.tail[task])

    def _tails(self) -> dict[int, int]:
        """For each task from the window on, the longest chain of tasks after the window, from its end to the end."""
        next_on_rank = {a: b for order in self.rank_after.values() for a, b in pairwise(order)}
        first_after = {rank: order[0] for rank, order in self.rank_after.items()}
        longest: dict[int, int] = {}

        def chain(task: int, following: int | None) -> int:
            arcs = [arc for arc in self.later[task] if arc[0] not in self.inside]
            if following is not None:
                arcs.append((following, 0))
            return max((hop + int(self.graph.duration[other]) + longest[other] for other, hop in arcs), default=0)

        outside = [task for order in self.rank_after.values() for task in order]
        for task in sorted(outside, key=lambda task: -int(self.incumbent[task])):
            longest[task] = chain(task, next_on_rank.get(task))
        for task in self.tasks:
            longest[task] = chain(task, first_after.get(self._rank(task)))
        return longest

    def respect_precedence(self) -> None:
        """A task starts when its inputs are there: s[j] >= s[i] + d[i] + hop[i, j], or that time where i is fixed."""
        for task in np.flatnonzero(
            (self.incumbent >= 0) & (self.incumbent <= self.incumbent[self.tasks].max())
        ).tolist():
            done = int(self.graph.duration[task])
            at = self.begin.get(task, int(self.incumbent[task]))
            for other, hop in self.later[task]:
                if other in self.inside:
                    self.model.add(self.begin[other] >= at + done + hop)

    def run_one_at_a_time(self) -> None:
        """A rank runs one task at a time: the intervals [s[i], s[i] + d[i]) of each rank are disjoint."""
        by_rank: dict[int, list[cp_model.IntervalVar]] = {}
        for task, begin in self.begin.items():
            interval = self.model.new_fixed_size_interval_var(begin, int(self.graph.duration[task]), "")
            by_rank.setdefault(self._rank(task), []).append(interval)
        for intervals in by_rank.values():
            self.model.add_no_overlap(intervals)

    def stay_within_memory(self) -> None:
        """What a rank holds stays within its room: base + sum of kept over forwards begun minus backwards ended."""
        n = self.graph.num_cells
        for rank in np.flatnonzero(self.graph.room >= 0).tolist():
            times: list[cp_model.LinearExprT] = [self.first_us]
            changes = [self._held_before(rank)]
            for task, begin in self.begin.items():
                cell = task % n
                if self.graph.rank[cell] != rank or not self.graph.kept[cell]:
                    continue
                if task < n:
                    times.append(begin)
                    changes.append(int(self.graph.kept[cell]))
                elif task >= 2 * n or not self.graph.duration[2 * n + cell]:
                    times.append(begin + int(self.graph.duration[task]))
                    changes.append(-int(self.graph.kept[cell]))
            if any(change > 0 for change in changes[1:]):
                self.model.add_reservoir_constraint(times, changes, 0, int(self.graph.room[rank]))

    def _held_before(self, rank: int) -> int:
        """Bytes that a rank holds when the window begins."""
        n = self.graph.num_cells
        held = 0
        for cell in np.flatnonzero((self.graph.rank == rank) & (self.graph.kept > 0)).tolist():
            last = 2 * n + cell if self.graph.duration[2 * n + cell] else n + cell
            if self._before(cell) and not self._before(last):
                held += int(self.graph.kept[cell])
        return held

    def _before(self, task: int) -> bool:
        return task not in self.inside and bool(self.incumbent[task] < self.first_us)

    def minimize_end(self) -> None:
        """Minimize the end of the schedule: end >= s[i] + d[i] + tail[i] for each free task."""
        for task, begin in self.begin.items():
            self.model.add(self.end >= begin + self._after(task))
            self.model.add_hint(begin, int(self.incumbent[task]))
        self.model.minimize(self.end)

    def solve(self, *, seconds: float, effort: float, seed: int) -> ExactResult:
        """Search for at most ``seconds``, and at most ``effort``, the solver's own unit that no clock decides."""
        solver = cp_model.CpSolver()
        if seconds < float("inf"):
            solver.parameters.max_time_in_seconds = max(0.01, seconds)
        solver.parameters.max_deterministic_time = effort
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = seed % SEEDS
        status = solver.solve(self.model)
        bound = int(solver.best_objective_bound) if status != cp_model.UNKNOWN else 0
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE) or solver.objective_value >= self.makespan:
            return ExactResult(start=None, bound_us=bound)
        start = self.incumbent.copy()
        # A free task may now start after a later one did: what comes after the window has to stay behind it.
        start[start >= self.first_us] += self.makespan
        for task, begin in self.begin.items():
            start[task] = solver.value(begin)
        return ExactResult(start=start, bound_us=bound)


def successors(graph: TaskGraph) -> list[list[tuple[int, int]]]:
    """For each task what waits for it, with the hop in between."""
    n = graph.num_cells
    later: list[list[tuple[int, int]]] = [[] for _ in range(3 * n)]
    for c in range(n):
        rows = range(graph.first[c], graph.first[c + 1])
        later[c] = [(int(graph.consumer[i]), int(graph.hop[i])) for i in rows]
        if not graph.has_backward[c]:
            continue
        later[c].append((n + c, 0))
        rows = range(graph.back_first[c], graph.back_first[c + 1])
        later[n + c] = [(n + int(graph.producer[i]), int(graph.back_hop[i])) for i in rows]
        if graph.duration[2 * n + c]:
            later[n + c].append((2 * n + c, 0))
    return later
