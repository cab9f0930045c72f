"""How critical tasks are in a schedule: by how much each may be late before the schedule gets longer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from planner_service.compiling import kernel

if TYPE_CHECKING:
    from planner_service.domain.graph import Ints, TaskGraph

NEVER = 1 << 60
"""Slack of what nothing waits for."""


class Slack(NamedTuple):
    """Time to spare, [3n] microseconds; NEVER where there is no task, or nothing waits for it.

    Parameters
    ----------
    data
        By how much the output of a task may be late: what other tasks take from it.
    rank
        By how much its rank may be late to go on after it; for the last task of a rank, to the end of the schedule.
    """

    data: Ints
    rank: Ints

    @property
    def least(self) -> Ints:
        """The smaller of both."""
        return np.minimum(self.data, self.rank)


def slack_of(graph: TaskGraph, start: Ints) -> Slack:
    """Slack of each task of a schedule that keeps its order.

    Parameters
    ----------
    graph
        The tasks, all ways decided.
    start
        [3n] Earliest starts in this order; -1 where there is no task.
    """
    tasks = np.flatnonzero(start >= 0)
    return Slack(*_slack(graph, start, tasks[np.argsort(start[tasks], kind="stable")]))


@kernel
def _slack(graph: TaskGraph, start: Ints, tasks: Ints) -> tuple[Ints, Ints]:
    n = graph.rank.shape[0]
    makespan = 0
    for task in tasks:
        makespan = max(makespan, start[task] + graph.duration[task])
    tail = np.full(3 * n, -1, dtype=np.int64)  # from the start of a task to the end of the schedule
    data = np.full(3 * n, NEVER, dtype=np.int64)
    rank = np.full(3 * n, NEVER, dtype=np.int64)
    behind = np.full(graph.room.shape[0], 0, dtype=np.int64)
    for i in range(tasks.shape[0] - 1, -1, -1):
        task = tasks[i]
        c = task % n
        longest = -1
        if task < n:
            longest = tail[n + c]
            for k in range(graph.first[c], graph.first[c + 1]):
                longest = max(longest, graph.hop[k] + tail[graph.consumer[k]])
        elif task < 2 * n:
            longest = tail[2 * n + c]
            for k in range(graph.back_first[c], graph.back_first[c + 1]):
                longest = max(longest, graph.back_hop[k] + tail[n + graph.producer[k]])
        end = start[task] + graph.duration[task]
        r = graph.rank[c]
        if longest >= 0:
            data[task] = makespan - end - longest
        rank[task] = makespan - end - behind[r]
        tail[task] = graph.duration[task] + max(longest, behind[r])
        behind[r] = tail[task]
    return data, rank
