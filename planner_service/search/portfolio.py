"""The search for one batch's schedule: all engines in turn, against the clock, the best found kept.

List scheduling from many seeds; forward-backward improvement of the best of them; annealing, with fewer and fewer
starting points as the time goes. Then, with the ways of all cells decided: less recompute where the order leaves room
for it, and CP-SAT, on the whole of a small instance and on windows of a large one. Every engine starts from the best
schedule found and can only improve it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from dip.bounds import fastest_times
from dip.fallback import activation_room

from planner_service.search.annealing import Walk, anneal
from planner_service.search.bounds import lower_bound_us
from planner_service.search.decoders import Guide, decode
from planner_service.search.exact import WindowModel
from planner_service.search.justify import can_mirror, justify
from planner_service.search.memory import restore
from planner_service.search.orders import orders_of
from planner_service.search.quick import RESERVES, is_limited
from planner_service.search.schedule import Schedule
from planner_service.search.seeds import seed_guides

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from planner_service.domain.graph import Ints
    from planner_service.search.decoders import Decoded
    from planner_service.search.quick import Candidate
    from planner_service.search.stopping import Stopping

EXACT_TASKS = 240
"""Instances of at most so many tasks go to CP-SAT whole."""

WINDOW_TASKS = 120
"""Tasks that move in one neighbourhood of CP-SAT."""

EXACT_EFFORT, WINDOW_EFFORT = 1.0, 0.05
"""Most that CP-SAT may spend on a whole instance and on a window, in its own deterministic unit of time."""

WALKS = 4
"""Starting points of the annealing."""

MOVES = 40
"""Moves between two looks at the clock; what CP-SAT may spend on a window counts as many."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One improvement: when, by what, to what makespan."""

    elapsed_ms: int
    engine: str
    makespan_us: int


@dataclass(kw_only=True)
class Portfolio:
    """State of one search.

    Parameters
    ----------
    best
        The best schedule of a decoder so far; at first the one to start from.
    stopping
        The budget.
    seed
        Of all random choices.
    """

    best: Candidate
    stopping: Stopping
    seed: int = 0
    steps: list[Step] = field(default_factory=list)
    bound_us: int = field(init=False)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self.bound_us = lower_bound_us(self.best.work)
        self._part = np.array(self.best.work.cell_part, dtype=np.int64)
        self._note(self.best.engine, self.best.makespan_us)

    def run(self) -> Schedule:
        """Search until the budget is spent or the makespan is proven; returns the best schedule."""
        *_, best = self.stages()
        return best

    def stages(self) -> Iterator[Schedule]:
        """Search, and hand out the best schedule after each stage: at the start, of seeds, of annealing, of CP-SAT."""
        yield Schedule.of(self.best)
        small = np.count_nonzero(self.best.decoded.start >= 0) <= EXACT_TASKS
        ordering = 0.4 if small else 0.75
        walks = [self._walk(found, guide) for found, guide in self._seeds()[:WALKS]]
        yield Schedule.of(self.best)
        while self.best.work.num_cells and not self._done(ordering):
            self._anneal(walks, until=ordering)
        schedule = self._restore(Schedule.of(self.best))
        yield schedule
        yield self._prove(schedule) if small else self._windows(schedule)

    def _done(self, share: float = 1.0) -> bool:
        return self.stopping.spent(share) or self.best.makespan_us <= self.bound_us

    def _note(self, engine: str, makespan_us: int) -> None:
        self.steps.append(Step(elapsed_ms=self.stopping.elapsed_ms(), engine=engine, makespan_us=makespan_us))

    def _offer(self, found: Decoded, engine: str, guide: Guide) -> None:
        """Keep what a decoder made if it is better."""
        if found.makespan_us < self.best.makespan_us:
            self.best = replace(self.best, decoded=found, engine=engine, guide=guide)
            self._note(engine, found.makespan_us)

    def _seeds(self) -> list[tuple[Decoded, Guide]]:
        """Decode all seeds, improve the best ones forwards and backwards; best first."""
        graph = self.best.graph
        found: dict[int, tuple[Decoded, Guide]] = {self.best.makespan_us: (self.best.decoded, self.best.guide)}
        known = self.best.guide.reserve
        near = sorted(RESERVES, key=lambda reserve: abs(reserve - known))[:3] if is_limited(graph) else [0.0]
        for reserve in near:
            for name, guide in seed_guides(graph, reserve):
                if self._done(0.2):
                    break
                decoded = decode(graph, guide)
                self.stopping.count(1)
                self._offer(decoded, f"list: {name}", guide)
                found.setdefault(decoded.makespan_us, (decoded, guide))
        starts = [found[makespan] for makespan in sorted(found)]
        for i, (decoded, guide) in enumerate(starts[: 2 * WALKS]):
            if self._done(0.3):
                break
            starts[i] = self._justified(decoded, guide, rounds=4), guide
        return sorted(starts, key=lambda pair: pair[0].makespan_us)

    def _justified(self, found: Decoded, guide: Guide, *, rounds: int) -> Decoded:
        """Forward-backward improvement, where the problem has a mirror."""
        if not can_mirror(self.best.graph):
            return found
        better = justify(self.best.graph, found, guide, rounds=rounds)
        self.stopping.count(2 * rounds)
        self._offer(better, "forward-backward", guide)
        return better

    def _walk(self, found: Decoded, guide: Guide) -> tuple[Walk, Guide]:
        priority = found.start[: 2 * self.best.graph.num_cells].astype(np.float64)
        return Walk(priority, found.makespan_us, priority, found.makespan_us), guide

    def _anneal(self, walks: list[tuple[Walk, Guide]], *, until: float) -> None:
        """Some moves of every walk; walks that fall behind are given up as the time goes."""
        graph = self.best.graph
        for i, (walk, guide) in enumerate(walks):
            if self._done(until):
                return
            left = max(0.0, 1.0 - self.stopping.progress() / until)
            heat, coarse = 5e-4 * left * self.best.makespan_us, 0.3 + 0.6 * left
            moved = anneal(graph, walk, guide, self._part, MOVES, heat, coarse, int(self.random.integers(1 << 31)))
            self.stopping.count(MOVES)
            walks[i] = moved, guide
            if moved.best_us < self.best.makespan_us:
                fed = Guide(moved.best_priority, guide.position, guide.rule, guide.reserve)
                best = decode(graph, fed)
                self._offer(best, "annealing", fed)
                self._justified(best, guide, rounds=2)
        kept = max(1, round(WALKS * (1.0 - self.stopping.progress() / until)))
        walks.sort(key=lambda pair: pair[0].best_us)
        del walks[kept:]

    def _better(self, schedule: Schedule, found: Schedule) -> Schedule:
        """The better of two schedules; a new one is noted."""
        if found.makespan_us >= schedule.makespan_us:
            return schedule
        self._note(found.engine, found.makespan_us)
        return found

    def _restore(self, schedule: Schedule) -> Schedule:
        """Recompute less, where the order leaves room for it."""
        work = schedule.work
        if not any(schedule.ways):
            return schedule
        orders = orders_of(schedule.graph, schedule.start)
        ways = restore(work, orders, schedule.ways, activation_room(work.job, work.chunks))
        self.stopping.count(1)
        return self._better(schedule, schedule.rewayed(ways, "less recompute"))

    def _prove(self, schedule: Schedule) -> Schedule:
        """Give a small instance to CP-SAT whole."""
        if self.stopping.spent() or schedule.makespan_us <= self.bound_us or not schedule.num_tasks:
            return schedule
        model = WindowModel(schedule.graph, schedule.start, schedule.start >= 0)
        each = WINDOW_EFFORT / MOVES
        effort = min(EXACT_EFFORT, each * self.stopping.left_evaluations())
        result = model.solve(seconds=self.stopping.left_s(), effort=effort, seed=self.seed)
        self.stopping.count(math.ceil(effort / each))
        if result.start is not None:
            schedule = self._better(schedule, schedule.reordered(result.start, "CP-SAT"))
        if self._bound_holds(schedule):
            self.bound_us = max(self.bound_us, min(result.bound_us, schedule.makespan_us))
        return schedule

    def _bound_holds(self, schedule: Schedule) -> bool:
        """Whether CP-SAT's bound holds for any strategy: memory limits nothing, and no other way is faster."""
        work, graph = schedule.work, schedule.graph
        if is_limited(graph) or work.job.split_backward:
            return False
        n = graph.num_cells
        return all(
            time.forward_us == graph.duration[c] and time.gradient_us == graph.duration[n + c]
            for c, time in enumerate(fastest_times(work))
        )

    def _windows(self, schedule: Schedule) -> Schedule:
        """Neighbourhoods of CP-SAT: windows in time."""
        while not self.stopping.spent() and self.stopping.left_s() > 0.05 and schedule.makespan_us > self.bound_us:
            model = WindowModel(schedule.graph, schedule.start, self._free(schedule.start))
            result = model.solve(seconds=self.stopping.left_s(), effort=WINDOW_EFFORT, seed=self.seed)
            self.stopping.count(MOVES)
            if result.start is not None:
                schedule = self._better(schedule, schedule.reordered(result.start, "CP-SAT window"))
        return schedule

    def _free(self, start: Ints) -> NDArray[np.bool_]:
        """Tasks of a window that begins at a random task."""
        tasks = np.flatnonzero(start >= 0)
        tasks = tasks[np.argsort(start[tasks], kind="stable")]
        first = int(self.random.integers(max(1, len(tasks) - WINDOW_TASKS + 1)))
        inside = tasks[first : first + WINDOW_TASKS]
        free: NDArray[np.bool_] = (start >= start[inside[0]]) & (start <= start[inside[-1]])
        return free
