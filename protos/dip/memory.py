"""Ways to run a chunk that keep less memory: how many of its layers use the leanest strategy they have."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING

from dip.costs import STORE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dip.costs import Cost
    from dip.job import Job
    from dip.work import Kind

Way = tuple[tuple[str, int], ...]
"""How a chunk's layers run: (strategy, number of layers) in layer order; empty means all of them store."""


class LeanWays:
    """For each kind of cell its ways from all layers storing to all that can being lean, the first layers first."""

    def __init__(self, job: Job, kinds: Sequence[Kind]) -> None:
        self._job, self._kinds = job, kinds
        self._leanest: dict[int, list[tuple[str, int]]] = {}
        self._ways: dict[tuple[int, int], Way] = {}

    def leanest(self, kind: int) -> list[tuple[str, int]]:
        """For each run of layers of a chunk: its strategy that keeps least, the cheapest of equals; its length."""
        if kind not in self._leanest:
            self._leanest[kind] = self._find_leanest(self._kinds[kind])
        return self._leanest[kind]

    def _find_leanest(self, kind: Kind) -> list[tuple[str, int]]:
        chosen = []
        for run, count in self._job.modules[kind.chunk.module].runs_of(kind.chunk.first_layer, kind.chunk.num_layers):
            costs = [(_weight(run.table.at(s, kind.units, kind.squares)), s) for s in run.table.strategies]
            chosen.append((min(costs, key=itemgetter(0))[1], count))
        return chosen

    def most(self, kind: int) -> int:
        """How many layers can save memory."""
        return sum(count for name, count in self.leanest(kind) if name != STORE)

    def way(self, kind: int, num_lean: int) -> Way:
        """Way in which the first ``num_lean`` of the layers that can save memory do, and all others store."""
        key = kind, num_lean
        if key not in self._ways:
            self._ways[key] = _first_lean(self.leanest(kind), num_lean)
        return self._ways[key]


def _weight(cost: Cost) -> tuple[float, float]:
    return cost.activation_bytes, cost.forward_us + cost.backward_input_us + cost.backward_weight_us


def _first_lean(leanest: Sequence[tuple[str, int]], num_lean: int) -> Way:
    way: list[tuple[str, int]] = []
    left = num_lean
    for name, count in leanest:
        lean = min(left, count) if name != STORE else 0
        left -= lean
        for strategy, layers in ((name, lean), (STORE, count - lean)):
            if not layers:
                continue
            if way and way[-1][0] == strategy:
                way[-1] = strategy, way[-1][1] + layers
            else:
                way.append((strategy, layers))
    return () if all(name == STORE for name, _ in way) else tuple(way)
