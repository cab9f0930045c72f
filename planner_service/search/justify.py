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
    exchanged = np.concatenate([np.arange(n, 2 * n), np.arange(n), np.arange(2 * n, 3 * n)])
    return graph._replace(
        duration=graph.duration[exchanged],
        whole=graph.duration[:n],
        lean_duration=graph.lean_duration[exchanged],
        lean_whole=graph.lean_duration[:n],
    )


def ends_of(graph: TaskGraph, found: Decoded) -> Ints:
    """End of each forward and backward, [2n]."""
    n = graph.num_cells
    lean = np.concatenate([found.lean, found.lean])
    return found.start[: 2 * n] + np.where(lean, graph.lean_duration[: 2 * n], graph.duration[: 2 * n])


def justify(graph: TaskGraph, found: Decoded, guide: Guide, *, rounds: int) -> Decoded:
    """Improve a schedule by at most ``rounds`` passes there and back; never returns a worse one."""
    n = graph.num_cells
    mirrored = mirror(graph)
    reserve, position = guide.reserve, guide.position
    flipped = position.max(initial=0) - position
    best = current = found
    for _ in range(rounds):
        ends = ends_of(graph, current)
        late_first = -np.concatenate([ends[n:], ends[:n]]).astype(np.float64)
        there = decode(mirrored, Guide(late_first, flipped, UNIFIED, reserve, guide.thrift, guide.hoard, guide.careful))
        ends = ends_of(mirrored, there)
        late_first = -np.concatenate([ends[n:], ends[:n]]).astype(np.float64)
        current = decode(graph, Guide(late_first, position, UNIFIED, reserve, guide.thrift, guide.hoard, guide.careful))
        if current.makespan_us >= best.makespan_us:
            break
        best = current
    return best
