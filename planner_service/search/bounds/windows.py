"""All ranks together: windows in which each task must run, if no schedule may be longer than a given length.

A task's window is its head and its deadline. Arcs and ranks take turns narrowing all windows until nothing changes:
successors start after their predecessors end, predecessors end before their successors must start, and on each rank
the rules of :mod:`planner_service.search.bounds.edge_finding` hold forwards and, with time turned around, backwards.
Each step keeps every schedule that lies in the windows; a window that is too short is proof that there is none. This
is how what happens on one rank delays what others do: the first and the last tasks of a pipeline above all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner_service.compiling import kernel
from planner_service.search.bounds.edge_finding import raise_heads

if TYPE_CHECKING:
    from planner_service.domain.graph import Ints
    from planner_service.search.bounds.tasks import FastestTasks


@kernel
def narrow(tasks: FastestTasks, head: Ints, deadline: Ints, rounds: int) -> bool:
    """Narrow windows in place; False is proof that no schedule lies in them.

    Parameters
    ----------
    tasks
        The tasks.
    head, deadline
        [3n] Earliest start and latest end of each task.
    rounds
        How often, at most, arcs and ranks take turns.
    """
    for _ in range(rounds):
        if not _along_arcs(tasks, head, deadline):
            return False
        changed = False
        for rank in range(tasks.first_of_rank.shape[0] - 1):
            mine = tasks.of_rank[tasks.first_of_rank[rank] : tasks.first_of_rank[rank + 1]]
            if mine.shape[0] == 0:
                continue
            first, last, duration = head[mine], deadline[mine], tasks.duration[mine]
            fits, later = raise_heads(first, last, duration)
            if not fits:
                return False
            # With time turned around a task can start from -deadline on, and must end by -head.
            fits, turned = raise_heads(-last, -first, duration)
            if not fits:
                return False
            for k in range(mine.shape[0]):
                if later[k] > first[k] or -turned[k] < last[k]:
                    head[mine[k]], deadline[mine[k]] = later[k], -turned[k]
                    changed = True
        if not changed:
            break
    return True


@kernel
def _along_arcs(tasks: FastestTasks, head: Ints, deadline: Ints) -> bool:
    """Narrow windows along all arcs; False where one is too short for its task."""
    for task in tasks.order:
        for arc in range(tasks.first[task], tasks.first[task + 1]):
            later = tasks.successor[arc]
            head[later] = max(head[later], head[task] + tasks.duration[task] + tasks.hop[arc])
    for task in tasks.order[::-1]:
        for arc in range(tasks.first[task], tasks.first[task + 1]):
            later = tasks.successor[arc]
            deadline[task] = min(deadline[task], deadline[later] - tasks.duration[later] - tasks.hop[arc])
        if head[task] + tasks.duration[task] > deadline[task]:
            return False
    return True
