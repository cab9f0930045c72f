"""What memory allows while a schedule is made, compiled: the rule that no order can deadlock on.

Groups (sub-microbatches that depend on each other) have an order. On every rank, what an unfinished group needs in all
plus what later groups hold never exceeds the room. So the oldest unfinished group can always run to its end, however
the priorities lie (a banker's rule: E. W. Dijkstra, EWD 623). A group's need counts its cells that have not run as
lean, and all that have run with what they hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from planner_service.compiling import inlined, kernel

if TYPE_CHECKING:
    from planner_service.domain.graph import Ints, TaskGraph

REFUSED, STORE, LEAN = 0, 1, 2
"""What memory allows a forward: nothing now, to store, or to run lean."""


class Memory(NamedTuple):
    """State of all ranks' memory.

    Parameters
    ----------
    slack
        [ranks, groups] By place in the order: the room, less what a group needs, less what later groups hold.
    todo
        [ranks, groups] Backwards that a group still has to end on a rank: its bytes cannot tell, lean layers may keep
        none.
    oldest
        [ranks] Place of the first unfinished group.
    held
        [ranks] Bytes held; -1 where a rank keeps no account.
    careful
        Whether the rule is kept. Without it only what is held counts, which admits more and may end stuck.
    """

    slack: Ints
    todo: Ints
    oldest: Ints
    held: Ints
    careful: bool


@kernel
def new_memory(graph: TaskGraph, position: Ints, careful: bool) -> Memory:
    """Nothing held; a rank that has no limit, or holds all cells at once within it, keeps no account."""
    groups, ranks = graph.need.shape
    held = np.zeros(ranks, dtype=np.int64)
    for c in range(graph.rank.shape[0]):
        held[graph.rank[c]] += max(graph.kept[c], graph.between[c])
    limited = False
    for r in range(ranks):
        if graph.room[r] < 0 or held[r] <= graph.room[r]:
            held[r] = -1
        else:
            held[r] = 0
            limited = True
    slack = np.empty((ranks, groups if limited else 0), dtype=np.int64)
    todo = np.zeros((ranks, groups if limited else 0), dtype=np.int64)
    if limited:
        for g in range(groups):
            for r in range(ranks):
                slack[r, position[g]] = graph.room[r] - graph.need[g, r]
        for c in range(graph.rank.shape[0]):
            if graph.has_backward[c]:
                todo[graph.rank[c], position[graph.group[c]]] += 1
    return Memory(slack, todo, np.zeros(ranks, dtype=np.int64), held, careful)


@inlined
def forward_way(graph: TaskGraph, position: Ints, memory: Memory, cell: int, reserve: float) -> int:
    """What a forward may do so that no group, its own and earlier ones, loses the room that it still needs."""
    r = graph.rank[cell]
    if memory.held[r] < 0 or not graph.has_backward[cell]:
        return STORE
    mine = position[graph.group[cell]]
    least, size = graph.lean_kept[cell], graph.kept[cell]
    worst = graph.room[r] - memory.held[r]
    if memory.careful:
        slack = memory.slack[r]
        worst = slack[mine] + least
        for p in range(memory.oldest[r], mine):
            worst = min(worst, slack[p])
    if size <= worst and memory.held[r] + size <= graph.room[r] * (1.0 - reserve):
        return STORE
    return LEAN if least <= worst else REFUSED


@inlined
def may_grow(graph: TaskGraph, position: Ints, memory: Memory, cell: int, more: int) -> bool:
    """Whether a cell may hold ``more`` bytes than it does."""
    r = graph.rank[cell]
    if memory.held[r] < 0:
        return True
    least = graph.room[r] - memory.held[r]
    if memory.careful:
        for p in range(memory.oldest[r], position[graph.group[cell]] + 1):
            least = min(least, memory.slack[r, p])
    return bool(more <= least)


@inlined
def begin_forward(graph: TaskGraph, position: Ints, memory: Memory, cell: int, lean: bool) -> None:
    """Let a cell hold what its way keeps; as much as its leanest way keeps was counted before."""
    r = graph.rank[cell]
    if memory.held[r] < 0:
        return
    size = graph.lean_kept[cell] if lean else graph.kept[cell]
    change(graph, position, memory, cell, size)
    memory.slack[r, position[graph.group[cell]]] += graph.lean_kept[cell]


@inlined
def change(graph: TaskGraph, position: Ints, memory: Memory, cell: int, more: int) -> None:
    """Let a cell hold ``more`` bytes, or fewer."""
    r = graph.rank[cell]
    if memory.held[r] < 0:
        return
    memory.held[r] += more
    for p in range(memory.oldest[r], position[graph.group[cell]] + 1):
        memory.slack[r, p] -= more


@inlined
def finish(graph: TaskGraph, position: Ints, memory: Memory, cell: int, size: int) -> None:
    """Let a cell go, with the ``size`` bytes that it held."""
    r = graph.rank[cell]
    if memory.held[r] < 0:
        return
    change(graph, position, memory, cell, -size)
    memory.todo[r, position[graph.group[cell]]] -= 1
    while memory.oldest[r] < memory.todo.shape[1] and memory.todo[r, memory.oldest[r]] == 0:
        memory.oldest[r] += 1
