"""How thrifty seeds are with memory, where it is limited: how much room is left free, and who recomputes first.

Layers of different modules pay differently for a byte: the wider a module, the more compute stands behind what it
keeps. Cells for which a saved byte costs less time than the average are called cheap; they may save more than others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from planner_service.domain.graph import TaskGraph
    from planner_service.search.decoders import Guide

ALIKE = 0.95
"""Share of the average price from which on a cell is not cheap."""


class Saving(NamedTuple):
    """What the guides of seeds save.

    Parameters
    ----------
    reserve
        Share of a rank's room that cells which store leave free.
    thrift
        What cheap cells add to that.
    """

    reserve: float
    thrift: float


SAVINGS = tuple(
    Saving(*pair)
    for pair in ((0.0, 0.0), (0.2, 0.0), (0.5, 0.0), (0.8, 0.0), (0.0, 0.4), (0.0, 0.7), (0.0, 1.0), (0.3, 0.7))
)
"""What is worth a try."""

NOTHING = Saving(0.0, 0.0)


def saving_of(guide: Guide) -> Saving:
    """What a seed's guide saves."""
    return Saving(guide.reserve, float(guide.thrift.max(initial=0.0)))


def nearest(saving: Saving, many: int) -> list[Saving]:
    """Savings most like another one."""
    return sorted(SAVINGS, key=lambda other: abs(other[0] - saving[0]) + abs(other[1] - saving[1]))[:many]


def thrifty(guide: Guide, saving: Saving, cheap: NDArray[np.float64]) -> Guide:
    """Return the guide with other savings."""
    return guide._replace(reserve=saving.reserve, thrift=saving.thrift * cheap)


def that_differ(savings: Sequence[Saving], cheap: NDArray[np.float64]) -> Sequence[Saving]:
    """Those savings that do not come to the same where no cell is cheap."""
    return savings if cheap.any() else tuple(dict.fromkeys(Saving(saving.reserve, 0.0) for saving in savings))


def cheap_cells(graph: TaskGraph) -> NDArray[np.float64]:
    """[n] 1 for cells to which a saved byte costs less time than to the average, else 0."""
    n = graph.num_cells
    more_us = graph.lean_duration[:n] + graph.lean_whole - graph.duration[:n] - graph.whole
    saved = (graph.kept - graph.lean_kept).astype(np.float64)
    can_save = graph.has_backward & (saved > 0)
    if not can_save.any():
        return np.zeros(n)
    price = np.divide(more_us, saved, out=np.full(n, np.inf), where=can_save)
    average = float(more_us[can_save].sum() / saved[can_save].sum())
    cheap: NDArray[np.float64] = (price < ALIKE * average).astype(np.float64)
    return cheap
