"""The tasks that all bounds speak of: every task as fast as any strategy makes it, and what must come before what.

Theorem. A schedule of these tasks that is no longer than T exists wherever the work has any schedule no longer than T.
Proof. Take that schedule. Forwards, input halves and weight halves take at least their least times: start each where it
starts, the half of a whole backward that gives the gradient first, what is left of it right behind. Nothing is longer
than it was, a gradient is no later than it was, and every rank still runs one task at a time. Memory is not looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from dip.bounds import fastest_times

from planner_service.compiling import kernel

if TYPE_CHECKING:
    from dip.work import Work

    from planner_service.domain.graph import Ints


class FastestTasks(NamedTuple):
    """Stage tasks with their least durations, numbered by phase as in :class:`planner_service.domain.graph.TaskGraph`.

    Parameters
    ----------
    duration
        [3n] Least microseconds of each forward, of what gives each gradient, and of what a backward takes beyond that;
        0 where there is no such task.
    first, successor, hop
        Arcs by task: those of task ``t`` are ``first[t] : first[t + 1]`` ([3n + 1]); each leads to the task
        ``successor`` and takes ``hop`` microseconds.
    order
        [3n] The tasks, each after all that it waits for.
    first_of_rank, of_rank
        Tasks of each rank: those of rank ``r`` are ``of_rank[first_of_rank[r] : first_of_rank[r + 1]]``.
    head, tail
        [3n] Longest chain before the start, and after the end, of each task.
    """

    duration: Ints
    first: Ints
    successor: Ints
    hop: Ints
    order: Ints
    first_of_rank: Ints
    of_rank: Ints
    head: Ints
    tail: Ints

    @property
    def longest_chain_us(self) -> int:
        """Microseconds of the longest chain."""
        return int(np.max(self.head + self.duration + self.tail, initial=0))


def fastest_tasks(work: Work) -> FastestTasks:
    """Tasks of a batch, each as fast as any strategy makes it."""
    n = work.num_cells
    trains = np.array(work.cell_trains, dtype=np.bool_)
    duration = _durations(work)
    edges = np.array([(edge.producer, edge.consumer, edge.hop_us) for edge in work.edges], dtype=np.int64)
    producer, consumer, hop = edges.reshape(-1, 3).T
    returns = trains[producer] if n else np.zeros(0, dtype=np.bool_)
    back, halved = np.flatnonzero(trains), np.flatnonzero(duration[2 * n :])
    source = np.concatenate([producer, n + consumer[returns], back, n + halved])
    target = np.concatenate([consumer, n + producer[returns], n + back, 2 * n + halved])
    away = np.concatenate([hop, hop[returns], np.zeros(len(back) + len(halved), dtype=np.int64)])
    first, by_source = _rows(source, 3 * n)
    successor, away = target[by_source], away[by_source]
    tasks = np.flatnonzero(duration)
    rank = np.tile(np.array(work.cell_rank, dtype=np.int64), 3)[tasks]
    first_of_rank, by_rank = _rows(rank, work.job.ranks)
    order, head, tail = _chains(duration, first, successor, away)
    return FastestTasks(
        duration=duration,
        first=first,
        successor=successor,
        hop=away,
        order=order,
        first_of_rank=first_of_rank,
        of_rank=tasks[by_rank],
        head=head,
        tail=tail,
    )


def _durations(work: Work) -> Ints:
    """Least times [3n] of all tasks."""
    times = fastest_times(work)
    forward = np.array([time.forward_us for time in times], dtype=np.int64)
    gradient = np.array([time.gradient_us for time in times], dtype=np.int64)
    total = np.array([time.total_us for time in times], dtype=np.int64)
    return np.concatenate([forward, gradient, total - forward - gradient])


def _rows(keys: Ints, many: int) -> tuple[Ints, Ints]:
    """Row starts [many + 1] and the order of items by their key."""
    starts = np.zeros(many + 1, dtype=np.int64)
    np.cumsum(np.bincount(keys, minlength=many), out=starts[1:])
    return starts, np.argsort(keys, kind="stable")


@kernel
def _chains(duration: Ints, first: Ints, successor: Ints, hop: Ints) -> tuple[Ints, Ints, Ints]:
    """Order of the tasks, heads, tails."""
    many = duration.shape[0]
    missing = np.zeros(many, dtype=np.int64)
    for task in successor:
        missing[task] += 1
    order = np.empty(many, dtype=np.int64)
    known = 0
    for task in range(many):
        if missing[task] == 0:
            order[known] = task
            known += 1
    head = np.zeros(many, dtype=np.int64)
    for place in range(many):
        task = order[place]
        for arc in range(first[task], first[task + 1]):
            later = successor[arc]
            head[later] = max(head[later], head[task] + duration[task] + hop[arc])
            missing[later] -= 1
            if missing[later] == 0:
                order[known] = later
                known += 1
    tail = np.zeros(many, dtype=np.int64)
    for task in order[::-1]:
        for arc in range(first[task], first[task + 1]):
            later = successor[arc]
            tail[task] = max(tail[task], hop[arc] + duration[later] + tail[later])
    return order, head, tail
