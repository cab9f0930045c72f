"""Compiled list scheduling: from a priority for each task to a schedule that cannot deadlock on memory.

The rank that can start something first goes next (as in the paper's interleaving); among what it can start by then it
takes the task of the lowest priority value. Memory is admitted by groups, as in :mod:`dip.listing`: on every rank, what
a group needs in all plus what later groups hold stays within the limit, so the oldest unfinished group can always run
to its end. A cell whose layers cannot all store without taking room that is promised or held in reserve is run lean.
Weight halves run when nothing else can start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from planner_service.domain.graph import Ints, TaskGraph

NEVER = 1 << 62
"""A time that does not come."""

UNIFIED, ALTERNATE = 0, 1
"""Rules of choice: by priority alone; or forward and backward in turn where both can start, as 1F1B does."""


class Guide(NamedTuple):
    """What a decoder is fed.

    Parameters
    ----------
    priority
        [2n] Of each forward and each backward (or input half): the lowest goes first.
    position
        [groups] Place of each group in the order in which memory is promised.
    rule
        UNIFIED or ALTERNATE.
    reserve
        Share of a rank's room that cells which store leave free: the more, the more layers are lean and the more
        groups can be in flight.
    """

    priority: NDArray[np.float64]
    position: Ints
    rule: int
    reserve: float


class Decoded(NamedTuple):
    """A schedule.

    Parameters
    ----------
    start
        [3n] Start of each task; -1 where there is none.
    makespan_us
        End of the last task; NEVER if the decoder got stuck.
    lean
        [n] Cells whose layers are lean.
    """

    start: Ints
    makespan_us: int
    lean: NDArray[np.bool_]


REFUSED, STORE, LEAN = 0, 1, 2
"""What memory allows a forward: nothing now, to store, or to run lean."""


@njit(cache=True)
def _admits(graph: TaskGraph, guide: Guide, held: Ints, need: Ints, oldest: int, newest: int, cell: int) -> int:
    """What a forward may do so that no group, its own and earlier ones, loses the room that it still needs."""
    rank = graph.rank[cell]
    room = graph.room[rank]
    least = graph.lean_kept[cell]
    if room < 0 or not graph.has_backward[cell]:
        return STORE
    mine = guide.position[graph.group[cell]]
    later = 0
    for p in range(mine + 1, newest + 1):
        later += held[p, rank]
    worst = need[mine, rank] - least + later
    later += held[mine, rank]
    for p in range(mine - 1, oldest - 1, -1):
        worst = max(worst, need[p, rank] + later)
        later += held[p, rank]
    if worst + least > room:
        return REFUSED
    size = graph.kept[cell]
    return STORE if worst + size <= room and later + size <= room * (1.0 - guide.reserve) else LEAN


@njit(cache=True)
def decode(graph: TaskGraph, guide: Guide) -> Decoded:
    """Schedule every task.

    Parameters
    ----------
    graph
        The tasks. Where every group fits alone on every rank, no priorities can get it stuck.
    guide
        Priorities and rules.
    """
    n = graph.rank.shape[0]
    ranks = graph.room.shape[0]
    groups = graph.need.shape[0]
    position = guide.position
    start = np.full(3 * n, -1, dtype=np.int64)
    lean = np.zeros(n, dtype=np.bool_)
    size = np.zeros(n, dtype=np.int64)
    ready = np.zeros(2 * n, dtype=np.int64)
    missing = np.empty(2 * n, dtype=np.int64)
    missing[:n] = graph.inputs
    missing[n:] = graph.gradients + 1
    need = np.empty((groups, ranks), dtype=np.int64)
    for g in range(groups):
        need[position[g]] = graph.need[g]
    held = np.zeros((groups, ranks), dtype=np.int64)
    # Backwards that each group still has to end: its bytes cannot tell, lean layers may keep none.
    unfinished = np.zeros(groups, dtype=np.int64)
    for c in range(n):
        unfinished[position[graph.group[c]]] += graph.has_backward[c]
    oldest, newest = 0, 0
    per_rank = np.zeros(ranks, dtype=np.int64)
    for c in range(n):
        per_rank[graph.rank[c]] += 1
    offset = np.zeros(ranks + 1, dtype=np.int64)
    for r in range(ranks):
        offset[r + 1] = offset[r] + 2 * per_rank[r]
    # Tasks of each rank that wait to start, and weight halves that may run at any time.
    waiting = np.empty(2 * n, dtype=np.int64)
    num_waiting = np.zeros(ranks, dtype=np.int64)
    weights = np.empty(2 * n, dtype=np.int64)
    first_weight = np.zeros(ranks, dtype=np.int64)
    num_weights = np.zeros(ranks, dtype=np.int64)
    free = np.zeros(ranks, dtype=np.int64)
    last_forward = np.zeros(ranks, dtype=np.bool_)
    soonest = np.full(ranks, NEVER, dtype=np.int64)
    for c in range(n):
        if missing[c] == 0:
            r = graph.rank[c]
            waiting[offset[r] + num_waiting[r]] = c
            num_waiting[r] += 1
            soonest[r] = 0
    makespan = 0
    unscheduled = n
    for c in range(n):
        unscheduled += graph.has_backward[c]
    while True:
        r = 0
        for other in range(1, ranks):
            if soonest[other] < soonest[r]:
                r = other
        now = soonest[r]
        if now >= NEVER:
            break
        chosen, slot = -1, -1
        chosen_turn = chosen_lean = False
        for i in range(offset[r], offset[r] + num_waiting[r]):
            task = waiting[i]
            if ready[task] > now:
                continue
            turn = guide.rule == ALTERNATE and ((task < n) != last_forward[r])
            if chosen >= 0:
                if chosen_turn and not turn:
                    continue
                if chosen_turn == turn and guide.priority[task] >= guide.priority[chosen]:
                    continue
            if task < n:
                allowed = _admits(graph, guide, held, need, oldest, newest, task)
                if allowed == REFUSED:
                    continue
                chosen_lean = allowed == LEAN
            chosen, slot, chosen_turn = task, i, turn
        begin = free[r]
        if chosen >= 0:
            begin = max(now, ready[chosen])
        if num_weights[r] > first_weight[r] and (chosen < 0 or begin > free[r]):
            cell = weights[offset[r] + first_weight[r]]
            first_weight[r] += 1
            task = 2 * n + cell
            start[task] = free[r]
            end = free[r] + graph.duration[task]
            p = position[graph.group[cell]]
            held[p, r] -= size[cell]
            need[p, r] -= size[cell]
            unfinished[p] -= 1
        else:
            unscheduled -= 1
            num_waiting[r] -= 1
            waiting[slot] = waiting[offset[r] + num_waiting[r]]
            start[chosen] = begin
            cell = chosen if chosen < n else chosen - n
            if chosen < n and chosen_lean:
                lean[cell] = True
            end = begin + (graph.lean_duration[chosen] if lean[cell] else graph.duration[chosen])
            p = position[graph.group[cell]]
            if chosen < n:
                last_forward[r] = True
                if graph.has_backward[cell]:
                    size[cell] = graph.lean_kept[cell] if lean[cell] else graph.kept[cell]
                    held[p, r] += size[cell]
                    need[p, r] += size[cell] - graph.lean_kept[cell]
                    newest = max(newest, p)
                    missing[n + cell] -= 1
                    ready[n + cell] = max(ready[n + cell], end)
                    if missing[n + cell] == 0:
                        waiting[offset[r] + num_waiting[r]] = n + cell
                        num_waiting[r] += 1
                for i in range(graph.first[cell], graph.first[cell + 1]):
                    later = graph.consumer[i]
                    ready[later] = max(ready[later], end + graph.hop[i])
                    missing[later] -= 1
                    if missing[later] == 0:
                        other = graph.rank[later]
                        waiting[offset[other] + num_waiting[other]] = later
                        num_waiting[other] += 1
                        if other != r and _admits(graph, guide, held, need, oldest, newest, later) != REFUSED:
                            soonest[other] = min(soonest[other], max(free[other], ready[later]))
            else:
                last_forward[r] = False
                if graph.duration[2 * n + cell] > 0 and not lean[cell]:
                    weights[offset[r] + num_weights[r]] = cell
                    num_weights[r] += 1
                else:
                    held[p, r] -= size[cell]
                    need[p, r] -= size[cell]
                    unfinished[p] -= 1
                for i in range(graph.back_first[cell], graph.back_first[cell + 1]):
                    later = n + graph.producer[i]
                    ready[later] = max(ready[later], end + graph.back_hop[i])
                    missing[later] -= 1
                    if missing[later] == 0:
                        other = graph.rank[later - n]
                        waiting[offset[other] + num_waiting[other]] = later
                        num_waiting[other] += 1
                        if other != r:
                            soonest[other] = min(soonest[other], max(free[other], ready[later]))
        free[r] = end
        makespan = max(makespan, end)
        while oldest < groups and unfinished[oldest] == 0:
            oldest += 1
        soonest[r] = free[r] if num_weights[r] > first_weight[r] else NEVER
        for i in range(offset[r], offset[r] + num_waiting[r]):
            task = waiting[i]
            when = max(free[r], ready[task])
            if when < soonest[r] and (task >= n or _admits(graph, guide, held, need, oldest, newest, task) != REFUSED):
                soonest[r] = when
                if when == free[r]:
                    break
    return Decoded(start, makespan if unscheduled == 0 else NEVER, lean)
