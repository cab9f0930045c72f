"""Schedules whose cells all keep the same share of their layers lean: between storing and lean there is room for more.

A decoder that chooses between the two for each cell fills a rank's memory unevenly; with all cells somewhat lean, more
groups are in flight. The DIP paper starts from such ways, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from planner_service.domain.graph import fixed_graph
from planner_service.search.decoders import UNIFIED, Guide, decode
from planner_service.search.schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dip.memory import Way

    from planner_service.search.quick import Candidate

SHARES = (0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0)
"""Shares of the layers that can save memory."""


def even_schedules(found: Candidate, guides: Sequence[Guide]) -> Iterator[Schedule]:
    """For each share the shortest schedule of some guides, where the groups fit with it.

    Parameters
    ----------
    found
        A schedule whose start times are priorities as well.
    guides
        What else to feed the decoder; reserves do not matter, nothing is left to choose.
    """
    work, graph, n = found.work, found.graph, found.graph.num_cells
    halves = graph.duration[2 * n :] > 0
    own = found.guide._replace(priority=found.decoded.start[: 2 * n].astype(np.float64), rule=UNIFIED)
    for share in SHARES:
        ways = _ways(found, share)
        fixed = fixed_graph(work, graph, ways, halves)
        limited = fixed.room >= 0
        if (fixed.need.max(axis=0, initial=0)[limited] > fixed.room[limited]).any():
            continue
        decoded = min((decode(fixed, guide) for guide in (own, *guides)), key=lambda made: made.makespan_us)
        start = decoded.start
        if not np.array_equal(start[2 * n :] >= 0, halves):
            fixed = fixed_graph(work, graph, ways, start[2 * n :] >= 0)
        yield Schedule(
            work=work, ways=ways, graph=fixed, start=start, makespan_us=decoded.makespan_us, engine="even ways"
        )


def _ways(found: Candidate, share: float) -> list[Way]:
    """Ways with this share of each cell's layers lean."""
    work, lean = found.work, found.work.lean_ways
    return [
        lean.way(kind, round(share * lean.most(kind))) if work.has_backward(cell) else ()
        for cell, kind in enumerate(work.cell_kind)
    ]
