"""The bound that every search starts with: chains, and each rank alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner_service.compiling import kernel
from planner_service.search.bounds.one_machine import preemptive_bound
from planner_service.search.bounds.tasks import FastestTasks, fastest_tasks

if TYPE_CHECKING:
    from dip.work import Work


def lower_bound_us(work: Work) -> int:
    """Largest of the longest chain and, for each rank, its preemptive one-machine bound.

    Every task of a rank has a head (the longest chain before it) and a tail (the longest after it).

    Returns
    -------
    int
        Microseconds; no schedule of this work is shorter, whatever its order, its strategies and its split backwards.
    """
    return bound_of_tasks(fastest_tasks(work))


def bound_of_tasks(tasks: FastestTasks) -> int:
    """Return the same bound, of tasks that are known."""
    return max(tasks.longest_chain_us, int(_busiest_rank(tasks)))


@kernel
def _busiest_rank(tasks: FastestTasks) -> int:
    """Largest one-machine bound of all ranks."""
    bound = 0
    for rank in range(tasks.first_of_rank.shape[0] - 1):
        mine = tasks.of_rank[tasks.first_of_rank[rank] : tasks.first_of_rank[rank + 1]]
        bound = max(bound, preemptive_bound(tasks.head[mine], tasks.duration[mine], tasks.tail[mine]))
    return bound
