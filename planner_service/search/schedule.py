"""A schedule with everything decided: what is lowered to a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from dip.fallback import leanest_ways

from planner_service.domain.graph import fixed_graph
from planner_service.search.orders import retime

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dip.memory import Way
    from dip.work import Work

    from planner_service.domain.graph import Ints, TaskGraph
    from planner_service.search.quick import Candidate


@dataclass(frozen=True, kw_only=True, slots=True)
class Schedule:
    """Order and ways of all tasks.

    Parameters
    ----------
    work
        The stage tasks.
    ways
        For each cell, how its layers run.
    graph
        The tasks with these ways.
    start
        [3n] Earliest starts in this order; -1 where there is no task.
    makespan_us
        End of the last task.
    engine
        What found it.
    """

    work: Work
    ways: Sequence[Way]
    graph: TaskGraph
    start: Ints
    makespan_us: int
    engine: str

    @classmethod
    def of(cls, found: Candidate) -> Schedule:
        """Schedule that a decoder made."""
        work, start = found.work, found.decoded.start
        lean = leanest_ways(work) if found.decoded.lean.any() else []
        ways: list[Way] = [lean[c] if is_lean else () for c, is_lean in enumerate(found.decoded.lean.tolist())]
        return cls(
            work=work,
            ways=ways,
            graph=fixed_graph(work, found.graph, ways, start[2 * work.num_cells :] >= 0),
            start=start,
            makespan_us=found.makespan_us,
            engine=found.engine,
        )

    def reordered(self, start: Ints, engine: str) -> Schedule:
        """Return the schedule that runs tasks in the order of these starts, as early as that allows.

        Backwards are split where the weight half has a start.
        """
        halves = self.work.num_cells * 2
        if np.array_equal(start[halves:] >= 0, self.start[halves:] >= 0):
            return self._retimed(self.graph, self.ways, start, engine)
        return self._rebuilt(self.ways, start, engine)

    def rewayed(self, ways: Sequence[Way], engine: str) -> Schedule:
        """Return the schedule with the same order and other ways."""
        return self._rebuilt(ways, self.start, engine)

    def _rebuilt(self, ways: Sequence[Way], order: Ints, engine: str) -> Schedule:
        graph = fixed_graph(self.work, self.graph, ways, order[2 * self.work.num_cells :] >= 0)
        return self._retimed(graph, ways, order, engine)

    def _retimed(self, graph: TaskGraph, ways: Sequence[Way], order: Ints, engine: str) -> Schedule:
        start, makespan_us = retime(graph, order)
        return Schedule(work=self.work, ways=ways, graph=graph, start=start, makespan_us=makespan_us, engine=engine)

    @property
    def num_tasks(self) -> int:
        """Number of tasks."""
        return int(np.count_nonzero(self.start >= 0))
