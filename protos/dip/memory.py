"""Ways to run a chunk that keep less memory: how many of its layers use the leanest strategy they have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dip.costs import STORE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dip.job import Job
    from dip.work import Kind

Way = tuple[tuple[str, int], ...]
"""How a chunk's layers run: (strategy, number of layers) in layer order; empty means all of them store."""

Runs = tuple[tuple[str, int], ...]
"""The leanest strategy of each run of identical layers of a chunk, and how many they are."""


class LeanWays:
    """For each kind of cell its ways from all layers storing to all that can being lean, the first layers first."""

    def __init__(self, job: Job, kinds: Sequence[Kind]) -> None:
        self._leanest: list[Runs | None] = [None] * len(kinds)
        self._job, self._kinds = job, kinds
        self._ways: dict[tuple[Runs, int], Way] = {}

    def leanest(self, kind: int) -> Runs:
        """For each run of layers of a chunk: its strategy that keeps least, the cheapest of equals; its length."""
        found = self._leanest[kind]
        if found is None:
            found = self._leanest[kind] = self._find_leanest(self._kinds[kind])
        return found

    def _find_leanest(self, kind: Kind) -> Runs:
        return tuple(
            (run.table.leanest(kind.units, kind.squares), count) for run, count in self._job.cost_book.runs(kind.chunk)
        )

    def most(self, kind: int) -> int:
        """How many layers can save memory."""
        return sum(count for name, count in self.leanest(kind) if name != STORE)

    def way(self, kind: int, num_lean: int) -> Way:
        """Way in which the first ``num_lean`` of the layers that can save memory do, and all others store."""
        key = self.leanest(kind), num_lean
        if key not in self._ways:
            self._ways[key] = _first_lean(*key)
        return self._ways[key]


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
