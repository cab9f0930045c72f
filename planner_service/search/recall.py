"""What a schedule teaches the next one: a batch like the last starts from its priorities.

Cells of two batches correspond when they are of the same chunk, their groups have the same rank by load, scaled to the
number of groups, and they are at the same place among the sub-microbatches of their group. A corresponding cell's
start, as a share of the makespan, is its priority.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from planner_service.search.decoders import UNIFIED, Guide

if TYPE_CHECKING:
    from dip.work import Work
    from numpy.typing import NDArray

    from planner_service.domain.graph import TaskGraph
    from planner_service.search.quick import Candidate


@dataclass(frozen=True, kw_only=True, slots=True)
class Recalled:
    """A schedule as shares of its makespan.

    Parameters
    ----------
    groups
        Number of groups.
    start
        For each cell's (rank of its group by load, module, chunk, place in the group): start of its forward and of its
        backward.
    order
        [groups] By rank of load: place in the order in which memory is promised.
    reserve, hoard
        As in the guide.
    """

    groups: int
    start: dict[tuple[int, int, int, int], tuple[float, float]]
    order: NDArray[np.float64]
    reserve: float
    hoard: float

    @classmethod
    def of(cls, found: Candidate) -> Recalled:
        """Remember a schedule that a decoder made."""
        work, graph, n = found.work, found.graph, found.graph.num_cells
        ranks = _ranks_by_load(graph)
        share = found.decoded.start / max(1, found.makespan_us)
        keys = _keys(work, graph, ranks)
        order = np.zeros(len(ranks))
        order[ranks] = found.guide.position / max(1, len(ranks))
        return cls(
            groups=len(ranks),
            start={key: (float(share[c]), float(share[n + c])) for c, key in enumerate(keys)},
            order=order,
            reserve=found.guide.reserve,
            hoard=found.guide.hoard,
        )

    def guide(self, work: Work, graph: TaskGraph) -> Guide | None:
        """What a decoder is to be fed for other work; None where nothing corresponds."""
        ranks = _ranks_by_load(graph)
        groups = len(ranks)
        if not groups or not self.groups:
            return None
        scale = (self.groups - 1) / max(1, groups - 1)
        priority = np.full(2 * graph.num_cells, np.nan)
        for c, (rank, module, chunk, place) in enumerate(_keys(work, graph, ranks)):
            for earlier in range(place, -1, -1):
                known = self.start.get((round(rank * scale), module, chunk, earlier))
                if known is not None:
                    priority[[c, graph.num_cells + c]] = known
                    break
        if np.isnan(priority).all():
            return None
        priority[np.isnan(priority)] = np.nanmean(priority)
        wanted = self.order[np.round(ranks * scale).astype(np.int64)]
        position = np.empty(groups, dtype=np.int64)
        position[np.argsort(wanted, kind="stable")] = np.arange(groups)
        return Guide(priority, position, UNIFIED, self.reserve, np.zeros(graph.num_cells), self.hoard, True)


def _ranks_by_load(graph: TaskGraph) -> NDArray[np.int64]:
    """[groups] Place of each group among all, by load."""
    load = np.zeros(len(graph.need), dtype=np.int64)
    np.add.at(load, graph.group, graph.duration.reshape(3, -1).sum(axis=0))
    ranks = np.empty(len(load), dtype=np.int64)
    ranks[np.argsort(load, kind="stable")] = np.arange(len(load))
    return ranks


def _keys(work: Work, graph: TaskGraph, ranks: NDArray[np.int64]) -> list[tuple[int, int, int, int]]:
    """For each cell what it corresponds by."""
    place: dict[tuple[int, int, int], int] = {}
    keys = []
    for cell, chunk in enumerate(work.cell_chunk):
        group = int(graph.group[cell])
        same = group, chunk.module, chunk.index
        place[same] = place.get(same, -1) + 1
        keys.append((int(ranks[group]), chunk.module, chunk.index, place[same]))
    return keys
