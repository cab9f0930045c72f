"""The search for one batch's schedule: all engines in turn, against the clock, the best found kept.

List scheduling from many seeds; forward-backward improvement of the best of them; annealing, with fewer and fewer
starting points as the time goes; less recompute where the order leaves room; CP-SAT on the whole of small instances,
and on windows of large ones. Every engine starts from the best schedule found and can only improve it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from dip.bounds import fastest_times
from dip.fallback import activation_room

from planner_service.domain.graph import task_graph
from planner_service.search.annealing import Walk, anneal
from planner_service.search.bounds import lower_bound_us
from planner_service.search.decoders import Guide, decode
from planner_service.search.exact import WindowModel
from planner_service.search.justify import can_mirror, justify
from planner_service.search.memory import restore
from planner_service.search.orders import orders_of, retime
from planner_service.search.seeds import seed_guides

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from planner_service.search.decoders import Decoded
    from planner_service.search.quick import Candidate
    from planner_service.search.stopping import Stopping

EXACT_TASKS = 240
"""Instances of at most so many tasks go to CP-SAT whole."""

WINDOW_TASKS = 120
"""Tasks that move in one neighbourhood of CP-SAT."""

EXACT_EFFORT, WINDOW_EFFORT = 1.0, 0.05
"""What CP-SAT may spend on a whole instance and on a window, in its own deterministic unit of time."""

WALKS = 4
"""Starting points of the annealing."""

MOVES = 40
"""Moves between two looks at the clock."""


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
        The best schedule so far; at first the one to start from.
    stopping
        The budget.
    seed
        Of all random choices.
    on_better
        Called with each new best.
    """

    best: Candidate
    stopping: Stopping
    seed: int = 0
    on_better: Callable[[Candidate], None] | None = None
    steps: list[Step] = field(default_factory=list)
    bound_us: int = 0

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self.bound_us = lower_bound_us(self.best.work)
        self._part = np.array(self.best.work.cell_part, dtype=np.int64)
        self._note()

    def run(self) -> Candidate:
        """Search until the budget is spent or the makespan is proven; returns the best schedule."""
        if not self.best.work.num_cells:
            return self.best
        starts = self._seeds()
        self._restore()
        self._prove()
        walks = [self._walk(found, guide) for found, guide in starts[:WALKS]]
        share_of_windows = 0.3
        while walks and not self._done(1.0 - share_of_windows):
            self._anneal(walks, until=1.0 - share_of_windows)
        self._restore()
        self._windows()
        return self.best

    def _done(self, share: float = 1.0) -> bool:
        return self.stopping.spent(share) or self.best.makespan_us <= self.bound_us

    def _note(self) -> None:
        step = Step(elapsed_ms=self.stopping.elapsed_ms(), engine=self.best.engine, makespan_us=self.best.makespan_us)
        self.steps.append(step)
        if self.on_better:
            self.on_better(self.best)

    def _offer(self, found: Decoded, engine: str, guide: Guide | None = None) -> None:
        """Keep a schedule if it is better."""
        if found.makespan_us < self.best.makespan_us:
            self.best = replace(self.best, decoded=found, engine=engine, guide=guide or self.best.guide)
            self._note()

    def _seeds(self) -> list[tuple[Decoded, Guide]]:
        """Decode all seeds, improve the best ones forwards and backwards; best first."""
        graph = self.best.graph
        found: list[tuple[Decoded, Guide]] = [(self.best.decoded, self.best.guide)]
        for name, guide in seed_guides(graph):
            if self._done(0.25):
                break
            decoded = decode(graph, guide)
            self.stopping.count(1)
            self._offer(decoded, f"list: {name}", guide)
            found.append((decoded, guide))
        found.sort(key=lambda pair: pair[0].makespan_us)
        distinct = {decoded.makespan_us: (decoded, guide) for decoded, guide in reversed(found)}
        starts = sorted(distinct.values(), key=lambda pair: pair[0].makespan_us)
        if not can_mirror(graph):
            return starts
        for i, (decoded, guide) in enumerate(starts[: 2 * WALKS]):
            if self._done(0.35):
                break
            better = justify(graph, decoded, guide.position, rounds=4)
            self.stopping.count(8)
            self._offer(better, "forward-backward", guide)
            starts[i] = better, guide
        return sorted(starts, key=lambda pair: pair[0].makespan_us)

    def _walk(self, found: Decoded, guide: Guide) -> tuple[Walk, Guide]:
        n = self.best.graph.num_cells
        priority = found.start[: 2 * n].astype(np.float64)
        return Walk(priority, found.makespan_us, priority, found.makespan_us), guide

    def _anneal(self, walks: list[tuple[Walk, Guide]], *, until: float) -> None:
        """Some moves of every walk; walks that fall behind are given up as the time goes."""
        graph = self.best.graph
        for i, (walk, guide) in enumerate(walks):
            if self._done(until):
                return
            left = max(0.0, 1.0 - self.stopping.progress() / until)
            moved = anneal(
                graph,
                walk,
                guide.position,
                self._part,
                guide.rule,
                MOVES,
                5e-4 * left * self.best.makespan_us,
                0.3 + 0.6 * left,
                int(self.random.integers(1 << 31)),
            )
            self.stopping.count(MOVES)
            walks[i] = moved, guide
            if moved.best_us < self.best.makespan_us:
                best = decode(graph, Guide(moved.best_priority, guide.position, guide.rule, 0))
                self._offer(best, "annealing", guide)
                better = justify(graph, best, guide.position, rounds=2) if can_mirror(graph) else best
                self._offer(better, "forward-backward", guide)
        kept = max(1, round(WALKS * (1.0 - self.stopping.progress() / until)))
        walks.sort(key=lambda pair: pair[0].best_us)
        del walks[kept:]

    def _restore(self) -> None:
        """Recompute less, where the best order leaves room for it."""
        work = self.best.work
        if not any(self.best.ways) or not self.best.graph.room.max() >= 0:
            return
        room = activation_room(work.job, work.chunks)
        orders = orders_of(self.best.graph, self.best.decoded.start)
        ways = restore(work, orders, self.best.ways, room)
        graph = task_graph(work, ways)
        self.stopping.count(1)
        found = retime(graph, self.best.decoded.start)
        if found.makespan_us < self.best.makespan_us:
            self.best = replace(self.best, decoded=found, engine="less recompute", ways=ways, graph=graph)
            self._note()

    def _prove(self) -> None:
        """Give a small instance to CP-SAT whole."""
        graph, start = self.best.graph, self.best.decoded.start
        num_tasks = int((start >= 0).sum())
        if num_tasks > EXACT_TASKS or self._done():
            return
        model = WindowModel(graph, start, start >= 0)
        result = model.solve(seconds=0.4 * self.stopping.left_s(), effort=EXACT_EFFORT, seed=self.seed)
        self.stopping.count(MOVES)
        if result.start is not None:
            self._offer(retime(graph, result.start), "CP-SAT")
        if self._bound_holds():
            self.bound_us = max(self.bound_us, min(result.bound_us, self.best.makespan_us))

    def _bound_holds(self) -> bool:
        """Whether CP-SAT's bound holds for any strategy: nothing is limited, and no other way is faster."""
        work, graph = self.best.work, self.best.graph
        if graph.room.max() >= 0 or work.job.split_backward:
            return False
        fastest = fastest_times(work)
        n = graph.num_cells
        return all(
            time.forward_us == graph.duration[c] and time.gradient_us == graph.duration[n + c]
            for c, time in enumerate(fastest)
        )

    def _windows(self) -> None:
        """Neighbourhoods of CP-SAT: windows in time, where ranks idle most first."""
        while not self._done() and self._window():
            pass

    def _window(self) -> bool:
        """One neighbourhood; False where there is no time for one."""
        graph, start = self.best.graph, self.best.decoded.start
        if self.stopping.left_s() < 0.05:
            return False
        free = self._free(start)
        result = WindowModel(graph, start, free).solve(
            seconds=self.stopping.left_s(), effort=WINDOW_EFFORT, seed=self.seed
        )
        self.stopping.count(MOVES)
        if result.start is not None:
            self._offer(retime(graph, result.start), "CP-SAT window")
        return True

    def _free(self, start: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Tasks of a window that begins at a random task."""
        tasks = np.flatnonzero(start >= 0)
        tasks = tasks[np.argsort(start[tasks], kind="stable")]
        first = int(self.random.integers(max(1, len(tasks) - WINDOW_TASKS + 1)))
        inside = tasks[first : first + WINDOW_TASKS]
        low, high = start[inside[0]], start[inside[-1]]
        free: NDArray[np.bool_] = (start >= low) & (start <= high)
        return free
