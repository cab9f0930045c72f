"""Several annealing runs side by side on all allotted cores, sharing the best.

Walks start from different schedules. They move in rounds: all take some moves, each on a core, then the best of them is
known to all; those that fall behind are given up as the time goes. What a round finds does not depend on how many cores
run it.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from planner_service.search.annealing import Moves, Walk, anneal
from planner_service.search.decoders import NEVER, UNIFIED

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor

    from dip.work import Work

    from planner_service.domain.graph import TaskGraph
    from planner_service.search.decoders import Decoded, Guide

MOST_WALKS = 4
"""Walks at the start."""

HEAT = 2e-4
"""First temperature, as a share of the makespan."""

COARSE_FIRST, COARSE_LAST = 0.9, 0.3
"""Share of moves that shift groups, sub-microbatches or chunks rather than single tasks: at the start, and the end."""

THRIFTY = 0.1
"""Share of moves that change who is lean, where memory is limited."""

FEWEST_MOVES, MOST_MOVES = 10, 1000
"""Moves of a walk in one round, where the clock decides how many."""

ROUND_S = 0.02
"""Time that a round should take then."""


class Walks:
    """Annealing runs over one graph.

    Parameters
    ----------
    work, graph
        The stage tasks.
    starts
        Schedules to start from, with what they were made from; the best first.
    cores
        What runs the walks, one on each core.
    limited
        Whether memory leaves a choice of who is lean.
    random
        Source of all random choices.
    moves
        Moves of a walk in one round; 0: as many as the clock allows.
    """

    def __init__(
        self,
        work: Work,
        graph: TaskGraph,
        starts: Sequence[tuple[Decoded, Guide]],
        *,
        cores: Executor,
        limited: bool,
        random: np.random.Generator,
        moves: int,
    ) -> None:
        self._graph, self._cores, self._random = graph, cores, random
        self._part = np.array(work.cell_part, dtype=np.int64)
        number: dict[tuple[int, int], int] = {}
        chunks = [(chunk.module, chunk.index) for chunk in work.cell_chunk]
        self._chunk = np.array([number.setdefault(chunk, len(number)) for chunk in chunks], dtype=np.int64)
        self._module = np.array([chunk.module for chunk in work.cell_chunk], dtype=np.int64)
        self._thrifty = THRIFTY if limited else 0.0
        self._walks = [_walk(graph, found, guide) for found, guide in starts[:MOST_WALKS] if found.makespan_us < NEVER]
        self._fixed = moves > 0
        self._moves = moves or FEWEST_MOVES

    def __bool__(self) -> bool:
        """Whether there is any walk."""
        return bool(self._walks)

    def round(self, progress: float) -> int:
        """Take some moves of every walk; returns how many in all.

        Parameters
        ----------
        progress
            Used share of the time, from 0 to 1: the more, the cooler, the finer and the fewer.
        """
        left = max(0.0, 1.0 - progress)
        heat = HEAT * left * self.best[0].makespan_us
        coarse = COARSE_LAST + (COARSE_FIRST - COARSE_LAST) * left
        moves = Moves(self._part, self._chunk, self._module, self._moves, heat, coarse, self._thrifty)
        seeds = self._random.integers(1 << 31, size=len(self._walks)).tolist()
        began = time.monotonic()
        runs = [
            self._cores.submit(anneal, self._graph, walk, moves, seed)
            for walk, seed in zip(self._walks, seeds, strict=True)
        ]
        self._walks = [run.result() for run in runs]
        taken = self._moves * len(self._walks)
        if not self._fixed:
            scaled = self._moves * ROUND_S / max(1e-4, time.monotonic() - began)
            self._moves = int(min(MOST_MOVES, max(FEWEST_MOVES, scaled)))
        self._walks.sort(key=lambda walk: walk.best.makespan_us)
        del self._walks[max(1, round(MOST_WALKS * left)) :]
        return taken

    @property
    def best(self) -> tuple[Decoded, Guide]:
        """The best schedule that any walk found, and what it was made from."""
        return self._walks[0].best, self._walks[0].best_guide


def _walk(graph: TaskGraph, found: Decoded, guide: Guide) -> Walk:
    """Start from a schedule; its start times as priorities decode to itself."""
    fed = guide._replace(priority=found.start[: 2 * graph.num_cells].astype(np.float64), rule=UNIFIED)
    return Walk(fed, found.makespan_us, fed, found)
