"""Backwards whose halves run one right after the other run whole where that costs nothing.

A real split takes some more than a whole backward, which the contract's costs cannot say, and holds more where layers
recompute. It is worth that only where something waits for the gradient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from planner_service.search.criticality import NEVER, slack_of

if TYPE_CHECKING:
    from planner_service.domain.graph import Ints
    from planner_service.search.schedule import Schedule


def merged(schedule: Schedule) -> Schedule:
    """Run as many split backwards whole as leaves the makespan as it is.

    Candidates are those whose weight half follows the input half on its rank, and whose gradient may be late by as
    much; they are taken together, those with most time to spare first, half as many after each failure.

    Parameters
    ----------
    schedule
        All decided; it is returned where nothing can be merged.
    """
    n = schedule.work.num_cells
    cells = _adjacent(schedule)
    spare = _gradient_slack(schedule)[cells] - schedule.graph.duration[2 * n + cells]
    cells = cells[np.argsort(-spare, kind="stable")][: int((spare >= 0).sum())]
    while len(cells):
        start = schedule.start.copy()
        start[2 * n + cells] = -1
        found = schedule.reordered(start, schedule.engine)
        if found.makespan_us <= schedule.makespan_us:
            return found
        cells = cells[: len(cells) // 2]
    return schedule


def _gradient_slack(schedule: Schedule) -> Ints:
    """[n] By how much each cell's gradient may be late for those that wait for it."""
    n, graph, start = schedule.work.num_cells, schedule.graph, schedule.start
    consumer = np.repeat(np.arange(n), np.diff(graph.back_first))
    arrival = start[n + consumer] + graph.duration[n + consumer] + graph.back_hop
    waiting = n + graph.producer
    slack = np.full(n, NEVER, dtype=np.int64)
    np.minimum.at(slack, consumer, start[waiting] - arrival + slack_of(graph, start).least[waiting])
    return slack


def _adjacent(schedule: Schedule) -> Ints:
    """Cells whose weight half is what their rank runs after the input half."""
    n, start = schedule.work.num_cells, schedule.start
    tasks = np.flatnonzero(start >= 0)
    rank = schedule.graph.rank[tasks % n]
    tasks = tasks[np.lexsort((start[tasks], rank))]
    follows = (tasks[1:] - tasks[:-1] == n) & (tasks[:-1] >= n)
    found: Ints = tasks[:-1][follows] - n
    return found
