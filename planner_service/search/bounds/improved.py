"""The bound that a search improves once it has a schedule: lengths between the two are refuted one by one.

Source of the idea, called destructive improvement: R. Klein and A. Scholl, "Computing lower bounds by destructive
improvement", EJOR 112, 1999. If no schedule is as short as T, then T + 1 is a lower bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner_service.search.bounds.memory import memory_bound_us
from planner_service.search.bounds.quick import bound_of_tasks
from planner_service.search.bounds.tasks import FastestTasks, fastest_tasks
from planner_service.search.bounds.windows import narrow

if TYPE_CHECKING:
    from collections.abc import Callable

    from dip.work import Work

ROUNDS = 50
"""Turns of arcs and ranks in one test; most need a few."""

PRECISION = 1e-4
"""Share of the bound to which the longest length that can be refuted is found."""


def _never() -> bool:
    return False


def improved_bound_us(work: Work, *, incumbent_us: int, out_of_time: Callable[[], bool] = _never) -> int:
    """Best bound that refuting lengths proves.

    The better the incumbent, the sooner it is found.

    Parameters
    ----------
    work
        The stage tasks.
    incumbent_us
        Makespan of some schedule of it.
    out_of_time
        Asked before each length whether to be content with what is proven; by default the clock has no say.

    Returns
    -------
    int
        Microseconds, at least those of ``lower_bound_us`` and at most ``incumbent_us``.
    """
    tasks = fastest_tasks(work)
    bound = min(bound_of_tasks(tasks), incumbent_us)
    if out_of_time():
        return bound
    bound = min(max(bound, memory_bound_us(work, tasks, incumbent_us=incumbent_us)), incumbent_us)
    if bound < incumbent_us and not out_of_time() and is_refuted(tasks, incumbent_us - 1):
        return incumbent_us
    above = incumbent_us - 1
    while above - bound > PRECISION * bound and not out_of_time():
        length = (bound + above) // 2
        if is_refuted(tasks, length):
            bound = length + 1
        else:  # which proves nothing, and only ends the search above it
            above = length
    return bound


def is_refuted(tasks: FastestTasks, length_us: int) -> bool:
    """Whether narrowing windows proves that no schedule is so short."""
    return not narrow(tasks, tasks.head.copy(), length_us - tasks.tail, ROUNDS)
