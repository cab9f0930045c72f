"""A schedule relaxed: some tasks are free to move, all others keep their order but not their times.

Fixed tasks of a rank follow each other as before; a free task may stand anywhere among the few fixed ones around it.
Only the tasks whose place or duration is open become *nodes* of the relaxed problem; chains of all others shrink to
what they mean for nodes: a lag between two of them, a head before, a tail behind. So a neighbourhood costs what is free
in it, not how long the schedule is. (Source: D. Godard, P. Laborie and W. Nuijten, "Randomized large neighborhood
search for cumulative scheduling", ICAPS 2005, where such a relaxation is called a partial-order schedule.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from planner_service.compiling import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from planner_service.domain.graph import Ints, TaskGraph


@dataclass(frozen=True, kw_only=True, slots=True)
class Relaxation:
    """What is left of a schedule's constraints when some tasks are free.

    Parameters
    ----------
    nodes
        [k] Tasks of the relaxed problem, in the order of their starts now.
    free, movable
        [k] Nodes that are free; nodes whose place on their rank is open: free ones, and fixed ones that these may pass.
    low, high
        [k] How many fixed tasks of its rank stand before a free node at least, and at most; 0 for other nodes.
    head
        [k] No node starts earlier; microseconds.
    tail
        [k] Longest chain from the end of a node to the end of the schedule; microseconds.
    arcs
        [a, 3] A place in ``nodes``, another, and the least time from the end of the one to the start of the other.
    others_us
        End of the schedule as tasks without nodes before them decide it.
    sequence
        For each rank its fixed tasks in order.
    """

    nodes: Ints
    free: NDArray[np.bool_]
    movable: NDArray[np.bool_]
    low: Ints
    high: Ints
    head: Ints
    tail: Ints
    arcs: Ints
    others_us: int
    sequence: tuple[Ints, ...]


def relax(
    graph: TaskGraph, start: Ints, free: NDArray[np.bool_], *, reach: int, open_tasks: NDArray[np.bool_] | None = None
) -> Relaxation:
    """Relax a schedule.

    Parameters
    ----------
    graph
        The tasks, with the least duration that each may take.
    start
        [3n] Starts of the schedule; -1 where there is no task.
    free
        [3n] Tasks that may move.
    reach
        Fixed tasks of its rank that a free one may pass, to each side.
    open_tasks
        [3n] Fixed tasks that are to be nodes as well: those whose duration is open.
    """
    n = graph.num_cells
    tasks = np.flatnonzero(start >= 0)
    tasks = tasks[np.argsort(start[tasks], kind="stable")]
    rank = graph.rank[tasks % n]
    free_here = free[tasks]
    is_node = free & (start >= 0)
    if open_tasks is not None:
        is_node |= open_tasks & (start >= 0)
    movable = free & (start >= 0)
    lowest, highest = np.zeros(3 * n, dtype=np.int64), np.zeros(3 * n, dtype=np.int64)
    extra: list[Ints] = []
    sequence: list[Ints] = []
    for r in range(graph.num_ranks):
        on_rank = rank == r
        mine, moves = tasks[on_rank], free_here[on_rank]
        fixed = mine[~moves]
        sequence.append(fixed)
        extra.append(np.stack([fixed[:-1], fixed[1:]], axis=1) if len(fixed) > 1 else np.zeros((0, 2), dtype=np.int64))
        freed = mine[moves]
        if not len(freed):
            continue
        place = np.cumsum(~moves)[moves]  # fixed tasks before each free one
        low, high = np.maximum(place - reach, 0), np.minimum(place + reach, len(fixed))
        lowest[freed], highest[freed] = low, high
        behind, before = low > 0, high < len(fixed)
        extra.append(np.stack([fixed[low[behind] - 1], freed[behind]], axis=1))
        extra.append(np.stack([freed[before], fixed[high[before]]], axis=1))
        for first, last in _joined(low, high):
            movable[fixed[first:last]] = True
            is_node[fixed[first:last]] = True
            if first > 0:
                is_node[fixed[first - 1]] = True  # stands for all that happens on the rank before
    arcs = _Arcs(*_arcs(graph, tasks, np.concatenate(extra) if extra else np.zeros((0, 2), dtype=np.int64)))
    head, tail, others_us = _chains(graph.duration, tasks, is_node, arcs.first, arcs.target, arcs.lag)
    nodes = tasks[is_node[tasks]]
    return Relaxation(
        nodes=nodes,
        free=free[nodes],
        movable=movable[nodes],
        low=lowest[nodes],
        high=highest[nodes],
        head=head[nodes],
        tail=tail[nodes],
        arcs=_lags(graph.duration, tasks, is_node, arcs.first, arcs.target, arcs.lag),
        others_us=int(others_us),
        sequence=tuple(sequence),
    )


@dataclass(frozen=True, slots=True)
class _Arcs:
    """Arcs by the task that they leave: those of task i are ``first[i] : first[i + 1]``."""

    first: Ints
    target: Ints
    lag: Ints


def _joined(low: Ints, high: Ints) -> list[tuple[int, int]]:
    """Union of intervals [low, high), in order; those that touch are joined. Both ends ascend."""
    joined: list[tuple[int, int]] = []
    for a, b in zip(low.tolist(), high.tolist(), strict=True):
        if joined and a <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(b, joined[-1][1])
        else:
            joined.append((a, b))
    return joined


@kernel
def _arcs(graph: TaskGraph, tasks: Ints, extra: Ints) -> tuple[Ints, Ints, Ints]:
    """Precedences of the tasks, and extra ones without a lag, by the task that they leave."""
    n = graph.rank.shape[0]
    exists = np.zeros(3 * n, dtype=np.bool_)
    for task in tasks:
        exists[task] = True
    first = np.zeros(3 * n + 1, dtype=np.int64)
    for fill in range(2):
        if fill == 1:
            total = 0
            for i in range(3 * n):
                count = first[i]
                first[i] = total
                total += count
            first[3 * n] = total
            target = np.empty(total, dtype=np.int64)
            lag = np.zeros(total, dtype=np.int64)
            at = first.copy()
        for task in tasks:
            c = task % n
            if task < n:
                if exists[n + c]:
                    if fill:
                        target[at[task]] = n + c
                        at[task] += 1
                    else:
                        first[task] += 1
                for k in range(graph.first[c], graph.first[c + 1]):
                    if fill:
                        target[at[task]] = graph.consumer[k]
                        lag[at[task]] = graph.hop[k]
                        at[task] += 1
                    else:
                        first[task] += 1
            elif task < 2 * n:
                if exists[2 * n + c]:
                    if fill:
                        target[at[task]] = 2 * n + c
                        at[task] += 1
                    else:
                        first[task] += 1
                for k in range(graph.back_first[c], graph.back_first[c + 1]):
                    if fill:
                        target[at[task]] = n + graph.producer[k]
                        lag[at[task]] = graph.back_hop[k]
                        at[task] += 1
                    else:
                        first[task] += 1
        for k in range(extra.shape[0]):
            task = extra[k, 0]
            if fill:
                target[at[task]] = extra[k, 1]
                at[task] += 1
            else:
                first[task] += 1
    return first, target, lag


@kernel
def _chains(
    duration: Ints, tasks: Ints, is_node: NDArray[np.bool_], first: Ints, target: Ints, lag: Ints
) -> tuple[Ints, Ints, int]:
    """Heads and tails of all tasks; the end of the schedule as far as no node has a say in it."""
    head = np.zeros(duration.shape[0], dtype=np.int64)
    tail = np.zeros(duration.shape[0], dtype=np.int64)
    after_node = np.zeros(duration.shape[0], dtype=np.bool_)
    others = 0
    for i in tasks:
        end = head[i] + duration[i]
        decided = is_node[i] or after_node[i]
        if not decided:
            others = max(others, end)
        for k in range(first[i], first[i + 1]):
            j = target[k]
            head[j] = max(head[j], end + lag[k])
            if decided:
                after_node[j] = True
    for i in tasks[::-1]:
        for k in range(first[i], first[i + 1]):
            j = target[k]
            tail[i] = max(tail[i], lag[k] + duration[j] + tail[j])
            if not (is_node[i] or after_node[i]) and after_node[j] and not is_node[j]:
                others = max(others, head[i] + duration[i] + lag[k] + duration[j] + tail[j])
    return head, tail, others


@kernel
def _lags(duration: Ints, tasks: Ints, is_node: NDArray[np.bool_], first: Ints, target: Ints, lag: Ints) -> Ints:
    """For each pair of nodes with a chain between them that meets no other node: the length of the longest."""
    leads = np.zeros(duration.shape[0], dtype=np.bool_)  # to some node
    for i in tasks[::-1]:
        for k in range(first[i], first[i + 1]):
            if is_node[target[k]] or leads[target[k]]:
                leads[i] = True
    place = np.full(duration.shape[0], -1, dtype=np.int64)
    index = np.full(duration.shape[0], -1, dtype=np.int64)
    count = 0
    for p in range(tasks.shape[0]):
        place[tasks[p]] = p
        if is_node[tasks[p]]:
            index[tasks[p]] = count
            count += 1
    reached = np.full(tasks.shape[0], -1, dtype=np.int64)
    found = [(np.int64(0), np.int64(0), np.int64(0)) for _ in range(0)]
    for p in range(tasks.shape[0]):
        if not is_node[tasks[p]] or not leads[tasks[p]]:
            continue
        last = p
        for q in range(p, tasks.shape[0]):
            if q > last:
                break
            i = tasks[q]
            here = reached[q]
            if q == p:
                here = 0
            elif here < 0:
                continue
            elif is_node[i]:
                found.append((index[tasks[p]], index[i], here))
                reached[q] = -1
                continue
            else:
                here += duration[i]
            reached[q] = -1
            for k in range(first[i], first[i + 1]):
                j = target[k]
                if is_node[j] or leads[j]:
                    reached[place[j]] = max(reached[place[j]], here + lag[k])
                    last = max(last, place[j])
    arcs = np.empty((len(found), 3), dtype=np.int64)
    for k in range(len(found)):
        arcs[k, 0], arcs[k, 1], arcs[k, 2] = found[k]
    return arcs
