"""Simulated annealing over start-time priorities, compiled.

The state is a priority for each forward and backward: the start times of the schedule that they decode to. A move
shifts a whole group, the cells of one sub-microbatch, or a few single tasks in time; the decoder makes a schedule of
it. Groups and sub-microbatches move first, single tasks later, as measured to work best.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numba import njit

from planner_service.search.decoders import Guide, decode

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from planner_service.domain.graph import Ints, TaskGraph


class Walk(NamedTuple):
    """State of an annealing run between calls.

    Parameters
    ----------
    priority, makespan_us
        Of the current schedule; [2n].
    best_priority, best_us
        Of the best one seen.
    """

    priority: NDArray[np.float64]
    makespan_us: int
    best_priority: NDArray[np.float64]
    best_us: int


@njit(cache=True)
def anneal(
    graph: TaskGraph,
    walk: Walk,
    guide: Guide,
    part: Ints,
    moves: int,
    temperature: float,
    coarse: float,
    seed: int,
) -> Walk:
    """Take some moves.

    Parameters
    ----------
    graph
        The tasks.
    walk
        Where to go on; its arrays are not changed.
    guide
        Rules of the decoder; its priorities are not read.
    part
        [n] Sub-microbatch of each cell.
    moves
        How many moves to take.
    temperature
        Microseconds by which a schedule may get worse with probability 1/e.
    coarse
        Share of moves that shift groups or sub-microbatches rather than single tasks.
    seed
        Of the random choices.
    """
    np.random.seed(seed)
    n = graph.rank.shape[0]
    groups, parts = graph.need.shape[0], part[n - 1] + 1
    current, current_us = walk.priority.copy(), walk.makespan_us
    best, best_us = walk.best_priority.copy(), walk.best_us
    for _ in range(moves):
        tried = current.copy()
        reach = best_us * 0.1 * np.random.random() ** 2
        shift = np.random.normal() * reach
        offset = n * np.random.randint(0, 2)
        both = np.random.random() < 0.3
        if np.random.random() < coarse:
            if np.random.random() < 0.4:
                chosen, of_cell = np.random.randint(0, groups), graph.group
            else:
                chosen, of_cell = np.random.randint(0, parts), part
            for c in range(n):
                if of_cell[c] == chosen:
                    tried[offset + c] += shift
                    if both:
                        tried[n - offset + c] += shift
        else:
            for _ in range(np.random.randint(1, 6)):
                tried[np.random.randint(0, 2 * n)] += np.random.normal() * reach * 0.5
        found = decode(graph, Guide(tried, guide.position, guide.rule, guide.reserve))
        worse = found.makespan_us - current_us
        if worse <= 0 or (temperature > 0.0 and np.random.random() < np.exp(-worse / temperature)):
            current_us = found.makespan_us
            for i in range(2 * n):
                current[i] = found.start[i]
            if current_us < best_us:
                best_us = current_us
                best[:] = current
    return Walk(current, current_us, best, best_us)
