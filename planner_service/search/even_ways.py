"""Schedules whose cells all keep the same share of their layers lean: between storing and lean there is room for more.

A decoder that chooses between the two for each cell makes one lean rather than wait, and recomputes more than it must
where memory is scarce. With all cells somewhat lean it waits instead, and the choice of ways that follows takes back
what is not needed. The DIP paper starts from such ways, too. Cells that save cheaply may be leaner than others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from planner_service.domain.graph import fixed_graph
from planner_service.search.decoders import UNIFIED, Guide, decode
from planner_service.search.savings import cheap_cells
from planner_service.search.schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dip.memory import Way

    from planner_service.search.quick import Candidate

SHARES = tuple(
    (cheap, other)
    for other in (0.0, 0.125, 0.25, 0.5, 0.75, 1.0)
    for cheap in dict.fromkeys((other, (1 + other) / 2, 1.0))
)
"""Shares of the layers that can save memory and do: of cells that save cheaply, and of the others."""


def even_schedules(found: Candidate, guides: Sequence[Guide]) -> Iterator[Schedule]:
    """For each pair of shares the shortest schedule of some guides, where the groups fit with it.

    Parameters
    ----------
    found
        A schedule whose start times are priorities as well.
    guides
        What else to feed the decoder; reserves do not matter, nothing is left to choose.
    """
    work, graph, n = found.work, found.graph, found.graph.num_cells
    halves = graph.duration[2 * n :] > 0
    cheap = cheap_cells(graph)
    own = found.guide._replace(priority=found.decoded.start[: 2 * n].astype(np.float64), rule=UNIFIED)
    for shares in SHARES if cheap.any() else [pair for pair in SHARES if pair[0] == pair[1]]:
        ways = _ways(found, np.where(cheap > 0, *shares).tolist())
        fixed = fixed_graph(work, graph, ways, halves)
        limited = fixed.room >= 0
        if (fixed.need.max(axis=0, initial=0)[limited] > fixed.room[limited]).any():
            continue
        fed = (guide._replace(careful=careful) for guide in (own, *guides) for careful in (True, False))
        decoded = min((decode(fixed, guide) for guide in fed), key=lambda made: made.makespan_us)
        start = decoded.start
        if not np.array_equal(start[2 * n :] >= 0, halves):
            fixed = fixed_graph(work, graph, ways, start[2 * n :] >= 0)
        yield Schedule(
            work=work, ways=ways, graph=fixed, start=start, makespan_us=decoded.makespan_us, engine="even ways"
        )


def _ways(found: Candidate, shares: Sequence[float]) -> list[Way]:
    """Ways with some share of each cell's layers lean."""
    work, lean = found.work, found.work.lean_ways
    return [
        lean.way(kind, round(share * lean.most(kind))) if work.has_backward(cell) else ()
        for cell, (kind, share) in enumerate(zip(work.cell_kind, shares, strict=True))
    ]
