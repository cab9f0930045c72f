"""Forward-backward improvement: schedule the mirrored problem by how a schedule ends, and back.

Source: Tormos and Lova, "A competitive heuristic solution technique for resource-constrained project scheduling",
Annals of Operations Research 102, 2001; here both passes are list scheduling with the same memory rule. The mirror of a
task graph is the same graph with forwards and backwards exchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from planner_service.search.decoders import UNIFIED, Decoded, Guide, decode

if TYPE_CHECKING:
    from planner_service.domain.graph import Ints, TaskGraph


def can_mirror(graph: TaskGraph) -> bool:
    """Whether every cell has a whole backward: only then is the mirrored problem of the same form."""
    n = graph.num_cells
    return bool(graph.has_backward.all()) and not graph.duration[2 * n :].any()


def mirror(graph: TaskGraph) -> TaskGraph:
    """Return the graph whose schedules are those of ``graph`` run backwards in time."""
    n = graph.num_cells
    duration = graph.duration.copy()
    duration[:n], duration[n : 2 * n] = graph.duration[n : 2 * n], graph.duration[:n]
    return graph._replace(duration=duration)


def justify(graph: TaskGraph, found: Decoded, position: Ints, *, rounds: int) -> Decoded:
    """Improve a schedule by at most ``rounds`` passes there and back; never returns a worse one."""
    n = graph.num_cells
    mirrored = mirror(graph)
    flipped = position.max(initial=0) - position
    best = current = found
    for _ in range(rounds):
        ends = current.start[: 2 * n] + graph.duration[: 2 * n]
        late_first = -np.concatenate([ends[n:], ends[:n]]).astype(np.float64)
        there = decode(mirrored, Guide(late_first, flipped, UNIFIED, 0))
        ends = there.start[: 2 * n] + mirrored.duration[: 2 * n]
        late_first = -np.concatenate([ends[n:], ends[:n]]).astype(np.float64)
        current = decode(graph, Guide(late_first, position, UNIFIED, 0))
        if current.makespan_us >= best.makespan_us:
            break
        best = current
    return best
