"""Between starts and orders: what each rank runs in a schedule, and the earliest times that an order allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from dip.lowering import Phase

from planner_service.compiling import kernel

if TYPE_CHECKING:
    from dip.lowering import Task

    from planner_service.domain.graph import Ints, TaskGraph


def orders_of(graph: TaskGraph, start: Ints) -> list[list[Task]]:
    """Tasks of each rank by their start ([3n], -1 where there is no task)."""
    n = graph.num_cells
    tasks = np.flatnonzero(start >= 0)
    orders: list[list[Task]] = [[] for _ in range(graph.num_ranks)]
    for task in tasks[np.argsort(start[tasks], kind="stable")].tolist():
        cell = task % n
        halves = start[2 * n + cell] >= 0
        if task < n:
            phase = Phase.FORWARD
        elif task < 2 * n:
            phase = Phase.BACKWARD_INPUT if halves else Phase.BACKWARD
        else:
            phase = Phase.BACKWARD_WEIGHT
        orders[graph.rank[cell]].append((phase, cell))
    return orders


def retime(graph: TaskGraph, start: Ints) -> tuple[Ints, int]:
    """Earliest starts, and the makespan, when ranks keep the order of ``start`` and all ways are decided."""
    tasks = np.flatnonzero(start >= 0)
    earliest, makespan_us = _earliest(graph, tasks[np.argsort(start[tasks], kind="stable")])
    return earliest, int(makespan_us)


@kernel
def _earliest(graph: TaskGraph, tasks: Ints) -> tuple[Ints, int]:
    n = graph.rank.shape[0]
    start = np.full(3 * n, -1, dtype=np.int64)
    ready = np.zeros(3 * n, dtype=np.int64)
    free = np.zeros(graph.room.shape[0], dtype=np.int64)
    makespan = 0
    for task in tasks:
        cell = task % n
        rank = graph.rank[cell]
        start[task] = max(free[rank], ready[task])
        end = start[task] + graph.duration[task]
        free[rank] = end
        makespan = max(makespan, end)
        if task < n:
            ready[n + cell] = max(ready[n + cell], end)
            for i in range(graph.first[cell], graph.first[cell + 1]):
                ready[graph.consumer[i]] = max(ready[graph.consumer[i]], end + graph.hop[i])
        elif task < 2 * n:
            ready[2 * n + cell] = end
            for i in range(graph.back_first[cell], graph.back_first[cell + 1]):
                later = n + graph.producer[i]
                ready[later] = max(ready[later], end + graph.back_hop[i])
    return start, makespan
