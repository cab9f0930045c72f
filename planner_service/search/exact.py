"""CP-SAT on the interleaving: the whole of a small instance, with proof; a window in time of a large one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from dip.bounds import fastest_times

from planner_service.search.order_model import OrderModel
from planner_service.search.orders import retime
from planner_service.search.relaxation import relax

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from planner_service.domain.graph import Ints, TaskGraph
    from planner_service.search.schedule import Schedule


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
    """The free tasks of a schedule; all others stay behind and before what they are behind and before now.

    Parameters
    ----------
    graph
        The tasks, all ways decided.
    start
        [3n] Starts of the incumbent; -1 where there is no task.
    free
        [3n] Tasks that may move: all of them, or those that start in some window of time.
    """

    def __init__(self, graph: TaskGraph, start: Ints, free: NDArray[np.bool_]) -> None:
        self._model = OrderModel(graph, start, relax(graph, start, free & (start >= 0), reach=0), all_ends=False)

    def solve(self, *, seconds: float, effort: float, seed: int) -> ExactResult:
        """Search for at most ``seconds``, and at most ``effort``, the solver's own unit that no clock decides."""
        found = self._model.solve(seconds=seconds, effort=effort, seed=seed, thorough=True)
        return ExactResult(start=found.start, bound_us=found.bound_us)


def proven_bound_us(schedule: Schedule, *, seconds: float, effort: float, seed: int) -> int:
    """Lower bound on the makespan of any schedule of some work: whatever its order, strategies and splits.

    The instance with every cell as quick as any of its strategies, a split backward wherever one is allowed, and no
    limit of memory; a whole backward is a split one whose halves follow each other.

    Parameters
    ----------
    schedule
        Any schedule of the work: the solver starts from its order.
    seconds, effort
        Most to spend: of time, and of the solver's own unit, which no clock decides.
    seed
        Of the solver.

    Returns
    -------
    int
        Microseconds; 0 where the solver had too little time to say anything.
    """
    if not schedule.num_tasks:
        return 0
    n, graph = schedule.work.num_cells, _quickest(schedule)
    order = schedule.start * 2  # a half that is new comes right behind the other one
    halves = graph.duration[2 * n :] > 0
    order[2 * n :] = np.where(halves, np.where(order[2 * n :] < 0, order[n : 2 * n] + 1, order[2 * n :]), -1)
    start, makespan_us = retime(graph, order)
    model = OrderModel(graph, start, relax(graph, start, start >= 0, reach=0), all_ends=False)
    found = model.solve(seconds=seconds, effort=effort, seed=seed, thorough=True)
    return min(found.bound_us, makespan_us)


def _quickest(schedule: Schedule) -> TaskGraph:
    """Tasks of the least times that any strategies allow, in unlimited memory."""
    times = fastest_times(schedule.work)
    forward = np.array([time.forward_us for time in times], dtype=np.int64)
    given = np.array([time.gradient_us for time in times], dtype=np.int64)
    rest = np.array([time.total_us for time in times], dtype=np.int64) - forward - given
    duration = np.concatenate([forward, given, rest])
    return schedule.graph._replace(duration=duration, room=np.full_like(schedule.graph.room, -1))
