"""The paper's search: order of segments, dual-queue interleaving and memory ways in turn, until the time is up.

The order is searched with the memory ways held fixed; the best order of a while then gets its ways by integer
programming. What ways to hold fixed the paper does not say. Here each of the ten candidates in turn, for all pairs
alike, is tried in first-come order, under both memory rules; the best few of these *settings* are searched on, each
with a tree of its own, the worst given up as the time goes; from half of the time on, the ways of the best schedule are
a setting as well.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from dip.lowering import Phase

from planner_service.baselines.paper.arrays import NEVER, make_desk
from planner_service.baselines.paper.candidates import MOST
from planner_service.baselines.paper.cover import cover
from planner_service.baselines.paper.dual_queue import ADMIT, CLOSE, interleave
from planner_service.baselines.paper.memory_program import choose_ways
from planner_service.baselines.paper.problem import retime
from planner_service.baselines.paper.tree_search import TUNED, make_tree, random_search, tree_search

if TYPE_CHECKING:
    from collections.abc import Callable

    from dip.lowering import Task
    from numpy.typing import NDArray

    from planner_service.baselines.paper.arrays import Problem
    from planner_service.baselines.paper.problem import Base
    from planner_service.baselines.paper.tree_search import Tree, Tuning
    from planner_service.search.stopping import Stopping

    Ints = NDArray[np.int64]

SETTINGS = 3
"""Settings that are searched on where memory is limited."""

TURN = 0.06
"""Share of the budget that one setting is searched for before its best order gets its memory ways."""

LOOK_S = 0.02
"""Seconds between two looks at the clock."""

CAPACITY = 1 << 16
"""Nodes that a tree may have; a full one only makes roll-outs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A schedule: candidates of all cells, starts of all tasks, makespan in microseconds."""

    chosen: Ints
    start: Ints
    makespan_us: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One improvement: when, by what, to what makespan."""

    elapsed_ms: int
    engine: str
    makespan_us: int


@dataclass(kw_only=True, slots=True)
class Setting:
    """Memory ways held fixed, a memory rule, and what was found with them.

    Parameters
    ----------
    chosen, problem, rule
        Candidates of all cells, the problem with these, and the decoder's memory rule.
    tree
        Orders tried.
    best_us
        Best makespan after memory ways were chosen for it.
    polished_us
        Makespan of the order whose ways were chosen last.
    """

    chosen: Ints
    problem: Problem
    rule: int
    tree: Tree
    best_us: int = NEVER
    polished_us: int = NEVER


@dataclass(kw_only=True)
class PaperSearch:
    """State of one search.

    Parameters
    ----------
    base
        The stage tasks; at least one.
    stopping
        The budget.
    bound_us
        Lower bound on the makespan.
    seed
        Of all random choices.
    tuning
        Of the tree search.
    at_random
        Whether orders are drawn at random in place of the tree search.
    on_progress
        Called at each improvement with the seconds since the start and the makespan in microseconds.
    """

    base: Base
    stopping: Stopping
    bound_us: int
    seed: int = 0
    tuning: Tuning = TUNED
    at_random: bool = False
    on_progress: Callable[[float, int], None] | None = None
    best: Found | None = None
    steps: list[Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self.desk = make_desk(self.base.problem)
        self.pace = 1000.0  # schedules a second, before any is known

    def run(self) -> Found | None:
        """Search until the budget is spent or the bound is reached; None where every order got stuck."""
        settings = self._first_come()
        own_ways = False
        while settings and not self._done():
            for setting in settings:
                self._search(setting)
            settings.sort(key=lambda setting: setting.best_us)
            if len(settings) > 1 and self.stopping.spent(0.25):
                settings.pop()
            if self._limited and not own_ways and self.best and self.stopping.spent(0.5):
                own_ways = True
                settings.extend(self._settings(self.best.chosen, settings[0].tree.order))
        return self.best

    @property
    def _limited(self) -> bool:
        problem = self.base.problem
        return bool((problem.need.sum(axis=0) > problem.room).any())

    def _done(self) -> bool:
        return self.stopping.spent() or (self.best is not None and self.best.makespan_us <= self.bound_us)

    def _first_come(self) -> list[Setting]:
        """Decode the items as they come with all ways and rules worth a try; the best settings, best first."""
        natural = np.arange(self.base.problem.num_items)
        found: list[Setting] = []
        seen: set[bytes] = set()
        for level in range(MOST):
            chosen = self.base.candidates.at_level(level)
            if chosen.tobytes() in seen or (self.best is not None and self._done()):
                continue
            seen.add(chosen.tobytes())
            settings = self._settings(chosen, natural)
            found += settings
            if settings and (settings[0].problem.need.sum(axis=0) <= settings[0].problem.room).all():
                break  # nothing is limited any more: still leaner ways only take longer
        found.sort(key=lambda setting: int(setting.tree.makespan[0]))
        for setting in found[: 2 * SETTINGS]:
            self._choose_ways(setting)
        found.sort(key=lambda setting: setting.best_us)
        return found[:SETTINGS]

    def _settings(self, chosen: Ints, order: Ints) -> list[Setting]:
        """Settings of some ways under each memory rule, those that an order does not get stuck in."""
        problem = self.base.with_ways(chosen)
        tight = (problem.need.sum(axis=0) > problem.room).any()
        made: list[Setting] = []
        for rule in (CLOSE, ADMIT) if tight else (CLOSE,):
            makespan_us = int(interleave(problem, self.desk, order, rule))
            self.stopping.count(1)
            if makespan_us < NEVER:
                tree = make_tree(order, makespan_us, CAPACITY)
                made.append(Setting(chosen=chosen, problem=problem, rule=rule, tree=tree))
                self._offer(chosen, self.desk.start.copy(), makespan_us, "first come")
        return made

    def _search(self, setting: Setting) -> None:
        """Search the order for a while, then choose the memory ways of the best one."""
        end = min(1.0, self.stopping.progress() + (TURN if self._limited else 1.0))
        while not self.stopping.spent(end) and setting.tree.makespan[0] > self.bound_us:
            many = max(1, int(self.pace * LOOK_S))
            if not self.stopping.by_time:
                left = int((end - self.stopping.progress()) * self.stopping.max_evaluations + 0.5)
                many = int(max(1, min(left, self.stopping.left_evaluations())))
            before, began = int(setting.tree.makespan[0]), time.perf_counter()
            made = self._orders(setting, many)
            self.stopping.count(made)
            self.pace = made / max(1e-6, time.perf_counter() - began)
            if setting.tree.makespan[0] < before:
                makespan_us = int(interleave(setting.problem, self.desk, setting.tree.order, setting.rule))
                engine = "random order" if self.at_random else "tree search"
                self._offer(setting.chosen, self.desk.start.copy(), makespan_us, engine)
        self._choose_ways(setting)

    def _orders(self, setting: Setting, many: int) -> int:
        seed = int(self.random.integers(1 << 31))
        problem, tree, rule = setting.problem, setting.tree, setting.rule
        if self.at_random:
            return int(random_search(problem, self.desk, tree, rule, self.bound_us, many, seed))
        return int(tree_search(problem, self.desk, tree, rule, self.tuning, self.bound_us, many, seed))

    def _choose_ways(self, setting: Setting) -> None:
        """Give the best order of a setting its memory ways, if they were not chosen for it before."""
        makespan_us = int(setting.tree.makespan[0])
        if makespan_us >= setting.polished_us:
            return
        setting.polished_us = makespan_us
        setting.best_us = min(setting.best_us, makespan_us)
        if not setting.chosen.any():
            return
        interleave(setting.problem, self.desk, setting.tree.order, setting.rule)
        start = self.desk.start.copy()
        chosen = choose_ways(self.base, start, setting.chosen)
        tasks = np.flatnonzero(start >= 0)
        start, makespan_us = retime(self.base.with_ways(chosen), tasks[np.argsort(start[tasks], kind="stable")])
        self.stopping.count(1)
        setting.best_us = min(setting.best_us, makespan_us)
        self._offer(chosen, start, makespan_us, "memory program")

    def _offer(self, chosen: Ints, start: Ints, makespan_us: int, engine: str) -> None:
        """Keep a schedule if it is better."""
        if self.best is not None and makespan_us >= self.best.makespan_us:
            return
        self.best = Found(chosen=chosen, start=start, makespan_us=makespan_us)
        self.steps.append(Step(elapsed_ms=self.stopping.elapsed_ms(), engine=engine, makespan_us=makespan_us))
        if self.on_progress:
            self.on_progress(self.stopping.clock() - self.stopping.started, makespan_us)


def compile_kernels(base: Base) -> None:
    """Compile what the search calls, or load it from the cache, so that no budget pays for it."""
    order, desk, none = np.arange(base.problem.num_items), make_desk(base.problem), np.zeros(0, dtype=np.int64)
    tree = make_tree(order, NEVER, 1)
    interleave(base.problem, desk, order, CLOSE)
    tree_search(base.problem, desk, tree, CLOSE, TUNED, 0, 0, 0)
    random_search(base.problem, desk, tree, CLOSE, 0, 0, 0)
    retime(base.problem, none)
    cover(none, none, none.reshape(0, MOST), none.reshape(0, MOST), 0)


def orders_of(base: Base, start: Ints) -> list[list[Task]]:
    """Tasks of each rank by their start."""
    n = base.work.num_cells
    orders: list[list[Task]] = [[] for _ in range(base.problem.num_ranks)]
    tasks = np.flatnonzero(start >= 0)
    for task in tasks[np.argsort(start[tasks], kind="stable")].tolist():
        phase = Phase.FORWARD if task < n else Phase.BACKWARD
        orders[base.problem.queue[task] // 2].append((phase, task % n))
    return orders
