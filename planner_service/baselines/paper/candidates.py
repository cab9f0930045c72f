"""Memory-against-time candidates of each forward/backward pair: up to ten ways to run its layers (paper, step c)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from dip.costs import STORE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dip.chunk_costs import CellCost
    from dip.memory import Way
    from dip.work import Work
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

MOST = 10
"""Candidates of a pair."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidates:
    """Candidates of all kinds of cells, each kind's from the one that keeps most to the one that keeps least.

    Parameters
    ----------
    kind
        [n] Kind of each cell.
    ways
        The ways of each kind.
    forward_us, backward_us, kept_bytes
        [kinds, MOST] What each takes and keeps; a kind with fewer has its last one again. The backward is whole; of
        cells without one, it takes and keeps 0.
    """

    kind: Ints
    ways: tuple[tuple[Way, ...], ...]
    forward_us: Ints
    backward_us: Ints
    kept_bytes: Ints

    @classmethod
    def of(cls, work: Work) -> Candidates:
        """Candidates of all cells; where memory is not limited, only the way "store"."""
        cells: dict[int, int] = {}
        for cell, kind in enumerate(work.cell_kind):
            cells.setdefault(kind, cell)
        ways: list[tuple[Way, ...]] = []
        tables = np.zeros((3, len(work.kinds), MOST), dtype=np.int64)
        for kind in range(len(work.kinds)):
            cell = cells[kind]
            found = (
                _pareto(work, cell)
                if work.has_backward(cell) and any(work.job.memory_bytes)
                else [((), work.cost(cell))]
            )
            ways.append(tuple(way for way, _ in found))
            for place in range(MOST):
                cost = found[min(place, len(found) - 1)][1]
                back = work.has_backward(cell)
                tables[:, kind, place] = cost.forward_us, back * cost.backward_us, back * cost.kept_bytes
        return cls(
            kind=np.array(work.cell_kind, dtype=np.int64),
            ways=tuple(ways),
            forward_us=tables[0],
            backward_us=tables[1],
            kept_bytes=tables[2],
        )

    def at_level(self, level: int) -> Ints:
        """Candidate of every cell when all save alike: level 0 keeps most, level ``MOST - 1`` least."""
        places = [round(level * (len(ways) - 1) / (MOST - 1)) for ways in self.ways]
        return np.array(places, dtype=np.int64)[self.kind] if len(self.kind) else np.zeros(0, dtype=np.int64)

    def ways_of(self, chosen: Ints) -> list[Way]:
        """Ways of all cells from their candidates' indexes."""
        pairs = zip(self.kind.tolist(), chosen.tolist(), strict=True)
        return [self.ways[kind][min(place, len(self.ways[kind]) - 1)] for kind, place in pairs]


def _pareto(work: Work, cell: int) -> list[tuple[Way, CellCost]]:
    """Ways that no other way beats in both time and memory, at most ``MOST`` of them, the extremes among them."""
    priced = [(way, work.cost(cell, way)) for way in dict.fromkeys(_ways(work, cell))]
    priced.sort(key=lambda pair: (pair[1].forward_us + pair[1].backward_us, pair[1].kept_bytes))
    kept: list[tuple[Way, CellCost]] = []
    for way, cost in priced:
        if not kept or cost.kept_bytes < kept[-1][1].kept_bytes:
            kept.append((way, cost))
    if len(kept) <= MOST:
        return kept
    return [kept[round(place * (len(kept) - 1) / (MOST - 1))] for place in range(MOST)]


def _ways(work: Work, cell: int) -> Iterator[Way]:
    """For each strategy, and for the leanest of every layer: the first layers use it, from none to all of them."""
    lean, kind = work.lean_ways, work.cell_kind[cell]
    yield from (lean.way(kind, count) for count in range(lean.most(kind) + 1))
    chunk = work.cell_chunk[cell]
    runs = work.module_of(cell).runs_of(chunk.first_layer, chunk.num_layers)
    for name in dict.fromkeys(name for run, _ in runs for name in run.table.strategies if name != STORE):
        able = [(name in run.table.strategies, count) for run, count in runs]
        for most in range(1, sum(count for can, count in able if can) + 1):
            yield _first(name, able, most)


def _first(name: str, able: list[tuple[bool, int]], most: int) -> Way:
    """Way in which the first ``most`` of the layers that are able to use a strategy do, all others store."""
    way: list[tuple[str, int]] = []
    for can, count in able:
        using = min(most, count) if can else 0
        most -= using
        for strategy, layers in ((name, using), (STORE, count - using)):
            if layers and way and way[-1][0] == strategy:
                way[-1] = strategy, way[-1][1] + layers
            elif layers:
                way.append((strategy, layers))
    return tuple(way)
