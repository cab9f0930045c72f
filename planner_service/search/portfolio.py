"""The search for one batch's schedule: all engines in turn, against the clock, the best found kept.

List scheduling from many seeds; forward-backward improvement of the best of them; annealing on all allotted cores, with
fewer and fewer starting points as the time goes. Then, with the ways of all cells decided: the memory of each rank
spent where time is critical, and annealing of the order that this gives, in turn; and CP-SAT, on the whole of a small
instance and on neighbourhoods of large ones. Every engine starts from the best schedule found and can only improve it.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from planner_service.search.bounds import improved_bound_us, lower_bound_us
from planner_service.search.decoders import UNIFIED, Guide, decode
from planner_service.search.even_ways import even_schedules
from planner_service.search.exact import WindowModel, proven_bound_us
from planner_service.search.justify import can_mirror, justify
from planner_service.search.merging import merged
from planner_service.search.neighbourhoods import Neighbourhoods
from planner_service.search.quick import HOARDS, is_limited
from planner_service.search.savings import cheap_cells, nearest, saving_of, that_differ, thrifty
from planner_service.search.schedule import Schedule
from planner_service.search.seeds import seed_guides
from planner_service.search.walks import MOST_WALKS, Walks
from planner_service.search.way_choice import improve_memory
from planner_service.search.ways import some_are_quicker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Executor

    from planner_service.domain.graph import TaskGraph
    from planner_service.search.decoders import Decoded
    from planner_service.search.quick import Candidate
    from planner_service.search.recall import Recalled
    from planner_service.search.stopping import Stopping

EXACT_TASKS = 240
"""Instances of at most so many tasks go to CP-SAT whole."""

EXACT_EFFORT, WINDOW_EFFORT, MEMORY_EFFORT = 1.0, 0.05, 0.2
"""Most that CP-SAT may spend on a whole instance, on a window and on all ranks' memory: its own unit of time."""

MOVES = 40
"""Moves of all walks in a round where the clock does not decide; what CP-SAT may spend on a window counts as many."""

SEEDS_UNTIL, JUSTIFIED_UNTIL = 0.15, 0.25
"""Used share of the time after which no seed is tried, or improved forwards and backwards, any more."""

ANNEALED_UNTIL, SMALL_UNTIL = 0.8, 0.4
"""The same for annealing, and for annealing where CP-SAT is given the whole instance."""

WAYS_UNTIL, REORDERED_UNTIL = 0.55, 0.85
"""The same where memory is limited, for annealing with the ways of cells open, and decided."""

EVEN_UNTIL = 0.4
"""The same for annealing with the ways open, where cells that are all as lean do better at first."""

TIGHTENED_UNTIL = 0.5
"""The same for proving how good the best of seeds is."""

OVERRUN, OVERRUN_S = 0.1, 0.05
"""How far the last bound may overrun the time: a share of it, and seconds."""

LEAST_WINDOW_S = 0.03
"""Time left below which no window is begun: its model alone takes as long."""

TURNS = 2
"""How often ways are chosen anew."""

MEMORY_SHARE = 0.1
"""Most time for one choice of all ranks' ways."""


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
    cores
        How many to use. Where the clock does not decide when to stop, what is found does not depend on it.
    cp_sat
        Whether to use CP-SAT; without it, to see what it is worth.
    recalled
        Schedule of an earlier batch, to start from as well.
    """

    best: Candidate
    stopping: Stopping
    seed: int = 0
    cores: int = 1
    cp_sat: bool = True
    recalled: Recalled | None = None
    steps: list[Step] = field(default_factory=list)
    bound_us: int = field(init=False)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self.neighbourhoods = Neighbourhoods(seed=self.seed)
        self.bound_us = lower_bound_us(self.best.work)
        self._note(self.best.engine, self.best.makespan_us)

    def run(self) -> Schedule:
        """Search until the budget is spent or the makespan is proven; returns the best schedule."""
        *_, best = self.stages()
        return best

    def stages(self) -> Iterator[Schedule]:
        """Search, and hand out the best schedule after each stage: at the start, of seeds, of annealing, of CP-SAT."""
        yield Schedule.of(self.best)
        if not self.best.work.num_cells:
            return
        starts = self._seeds()
        self._tighten(self.best.makespan_us, until=TIGHTENED_UNTIL)
        yield Schedule.of(self.best)
        small = self.cp_sat and np.count_nonzero(self.best.decoded.start >= 0) <= EXACT_TASKS
        limited = is_limited(self.best.graph)
        choose_ways = limited or some_are_quicker(self.best.work)
        even = self._even(starts) if choose_ways else None
        with ThreadPoolExecutor(self.cores, thread_name_prefix="search") as cores:
            until = SMALL_UNTIL if small else WAYS_UNTIL if choose_ways else ANNEALED_UNTIL
            if even is not None:
                until = min(until, EVEN_UNTIL)
            self._anneal(self._walks(self.best.graph, starts, cores, limited=limited), until=until)
            schedule = Schedule.of(self.best)
            if even is not None and even.makespan_us < schedule.makespan_us:
                schedule = even
            if choose_ways:
                schedule = self._spend_memory(schedule)
                yield schedule
                schedule = self._reorder(schedule, cores)
        yield schedule
        if self.cp_sat:
            schedule = self._prove(schedule) if small else self._polish(schedule)
        shortened = replace(merged(schedule), engine="whole backwards")
        if shortened.makespan_us < schedule.makespan_us:
            self._note(shortened.engine, shortened.makespan_us)
        self._tighten(shortened.makespan_us, until=1.0 + OVERRUN + OVERRUN_S / self.stopping.seconds)
        yield shortened

    def _done(self, share: float, makespan_us: int | None = None) -> bool:
        """Whether the share of the budget is used, or a makespan, by default the best one, proven."""
        reached = self.best.makespan_us if makespan_us is None else makespan_us
        return self.stopping.spent(share) or reached <= self.bound_us

    def _note(self, engine: str, makespan_us: int) -> None:
        if self.steps and makespan_us >= self.steps[-1].makespan_us:
            return  # better than what this engine began with, and not than what another one has found
        self.steps.append(Step(elapsed_ms=self.stopping.elapsed_ms(), engine=engine, makespan_us=makespan_us))

    def _tighten(self, makespan_us: int, *, until: float) -> None:
        """Prove as much as can be proven of a schedule's distance from the optimum until a share of the time is used.

        Where the clock does not decide, all of it: the bound must not depend on how much was tried before.
        """
        if makespan_us <= self.bound_us:
            return

        def out_of_time() -> bool:
            return self.stopping.by_time and self.stopping.spent(until)

        proven = improved_bound_us(self.best.work, incumbent_us=makespan_us, out_of_time=out_of_time)
        self.bound_us = max(self.bound_us, proven)

    def _offer(self, found: Decoded, engine: str, guide: Guide) -> None:
        """Keep what a decoder made if it is better."""
        if found.makespan_us < self.best.makespan_us:
            self.best = replace(self.best, decoded=found, engine=engine, guide=guide)
            if found.makespan_us < self.steps[-1].makespan_us:
                self._note(engine, found.makespan_us)

    def _seeds(self) -> list[tuple[Decoded, Guide]]:
        """Decode all seeds, improve the best ones forwards and backwards; best first."""
        graph = self.best.graph
        found: dict[int, tuple[Decoded, Guide]] = {self.best.makespan_us: (self.best.decoded, self.best.guide)}
        guide = self.recalled.guide(self.best.work, graph) if self.recalled is not None else None
        if guide is not None:
            decoded = decode(graph, guide)
            self._offer(decoded, "priorities of the last batch", guide)
            found.setdefault(decoded.makespan_us, (decoded, guide))
        for name, guide in self._seed_guides():
            if self._done(SEEDS_UNTIL):
                break
            decoded = decode(graph, guide)
            self.stopping.count(1)
            self._offer(decoded, f"list: {name}", guide)
            found.setdefault(decoded.makespan_us, (decoded, guide))
        starts = [found[makespan] for makespan in sorted(found)]
        for i, (decoded, guide) in enumerate(starts[: 2 * MOST_WALKS]):
            if self._done(JUSTIFIED_UNTIL):
                break
            starts[i] = self._justified(decoded, guide, rounds=4), guide
        return sorted(starts, key=lambda pair: pair[0].makespan_us)

    def _seed_guides(self) -> Iterator[tuple[str, Guide]]:
        """All seeds, with the savings and hoards that lie nearest to those of the best schedule so far."""
        graph, best = self.best.graph, self.best.guide
        if not is_limited(graph):
            yield from seed_guides(graph)
            return
        cheap, splits = cheap_cells(graph), graph.duration[2 * graph.num_cells :].any()
        savings = that_differ(nearest(saving_of(best), 3), cheap)
        hoards = sorted(HOARDS, key=lambda hoard: abs(hoard - best.hoard))[:2] if splits else [1.0]
        named = list(seed_guides(graph))
        for saving, hoard, (name, guide), careful in product(savings, hoards, named, (True, False)):
            word = "" if careful else ", careless"
            yield f"{name}{word}", thrifty(guide, saving, cheap)._replace(hoard=hoard, careful=careful)

    def _justified(self, found: Decoded, guide: Guide, *, rounds: int) -> Decoded:
        """Forward-backward improvement, where the problem has a mirror."""
        if not can_mirror(self.best.graph):
            return found
        better = justify(self.best.graph, found, guide, rounds=rounds)
        self.stopping.count(2 * rounds)
        self._offer(better, "forward-backward", guide)
        return better

    def _even(self, starts: list[tuple[Decoded, Guide]]) -> Schedule | None:
        """Schedule of cells that are all as lean, where one is better than all so far."""
        guides = [guide for _, guide in starts[:MOST_WALKS]]
        best: Schedule | None = None
        for found in even_schedules(self.best, guides):
            self.stopping.count(1 + len(guides))
            if found.makespan_us < (self.best if best is None else best).makespan_us:
                best = found
                self._note(found.engine, found.makespan_us)
            if self.stopping.spent(JUSTIFIED_UNTIL):
                break
        return best

    def _walks(self, graph: TaskGraph, starts: list[tuple[Decoded, Guide]], cores: Executor, *, limited: bool) -> Walks:
        moves = 0 if self.stopping.by_time else MOVES // MOST_WALKS
        return Walks(self.best.work, graph, starts, cores=cores, limited=limited, random=self.random, moves=moves)

    def _anneal(self, walks: Walks, *, until: float) -> None:
        """Move all walks until the time is used or the best is proven."""
        began = self.stopping.progress()
        while not self._done(until):
            self.stopping.count(walks.round((self.stopping.progress() - began) / max(1e-9, until - began)))
            found, guide = walks.best
            self._offer(found, "annealing", guide)

    def _spend_memory(self, schedule: Schedule) -> Schedule:
        """Choose ways anew in the order found, by where time is critical."""
        if not self.cp_sat or self.stopping.spent():
            return schedule
        seconds = min(self.stopping.left_s(), MEMORY_SHARE * self.stopping.seconds)
        found = improve_memory(
            schedule,
            seconds=seconds if self.stopping.by_time else math.inf,
            effort=self._effort(MEMORY_EFFORT, share=MEMORY_SHARE),
            seed=self.seed,
        )
        return self._better(schedule, replace(found, engine="CP-SAT memory"))

    def _reorder(self, schedule: Schedule, cores: Executor) -> Schedule:
        """Anneal the order with all ways decided, then choose them anew, in turn."""
        began = self.stopping.progress()
        for turn in range(TURNS):
            until = began + (REORDERED_UNTIL - began) * (turn + 1) / TURNS
            graph = schedule.graph
            priority = schedule.start[: 2 * graph.num_cells].astype(np.float64)
            guide = Guide(priority, self.best.guide.position, UNIFIED, 0.0, np.zeros(graph.num_cells), 1.0, True)
            guides = guide, guide._replace(careful=False)
            made = sorted(((decode(graph, each), each) for each in guides), key=lambda pair: pair[0].makespan_us)
            walks = self._walks(graph, made, cores, limited=False)
            while walks and not self._done(until, schedule.makespan_us):
                self.stopping.count(walks.round((self.stopping.progress() - began) / (REORDERED_UNTIL - began)))
                found, _ = walks.best
                if found.makespan_us < schedule.makespan_us:
                    schedule = self._better(schedule, schedule.reordered(found.start, "annealing, ways decided"))
            schedule = self._spend_memory(schedule)
        return schedule

    def _better(self, schedule: Schedule, found: Schedule) -> Schedule:
        """The better of two schedules; a new one is noted."""
        if found.makespan_us >= schedule.makespan_us:
            return schedule
        self._note(found.engine, found.makespan_us)
        return found

    def _prove(self, schedule: Schedule) -> Schedule:
        """Give a small instance to CP-SAT whole: a better order first, then a bound that holds for any ways."""
        if self.stopping.spent() or schedule.makespan_us <= self.bound_us or not schedule.num_tasks:
            return schedule
        model = WindowModel(schedule.graph, schedule.start, schedule.start >= 0)
        result = model.solve(seconds=self.stopping.left_s() / 2, effort=self._effort(EXACT_EFFORT), seed=self.seed)
        if result.start is not None:
            schedule = self._better(schedule, schedule.reordered(result.start, "CP-SAT"))
        self._tighten(schedule.makespan_us, until=1.0)
        if schedule.makespan_us > self.bound_us and not self.stopping.spent():
            left_s, effort = self.stopping.left_s(), self._effort(EXACT_EFFORT)
            proven = proven_bound_us(schedule, seconds=left_s, effort=effort, seed=self.seed)
            self.bound_us = max(self.bound_us, min(proven, schedule.makespan_us))
        return schedule

    def _effort(self, most: float, share: float = 1.0) -> float:
        """What CP-SAT may spend of its own unit, at most a share of what is left, counted as evaluations."""
        each = WINDOW_EFFORT / MOVES
        effort = min(most, each * share * self.stopping.left_evaluations())
        self.stopping.count(math.ceil(effort / each))
        return effort

    def _polish(self, schedule: Schedule) -> Schedule:
        """Solve neighbourhoods of the schedule anew."""
        best = schedule
        while not self._done(1.0, best.makespan_us) and (seconds := self.stopping.left_s()) >= LEAST_WINDOW_S:
            effort = self._effort(WINDOW_EFFORT)
            found = self.neighbourhoods.improve(schedule, seconds=seconds, effort=effort)
            if found is not None:
                schedule = found
                best = self._better(best, found)
        return best
