"""Balanced bins by CP-SAT: which item goes where so that the fullest bin is as empty as it can be."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ortools.sat.python import cp_model

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_DETERMINISTIC_TIME = 0.02
"""What one split may cost the solver: its own unit, a few milliseconds, the same on every machine."""


def balance(sizes: Sequence[Sequence[int]], weights: Sequence[float], num_bins: int) -> list[int]:
    """Assign items to bins.

    Parameters
    ----------
    sizes
        For each item its size in each dimension (module).
    weights
        How much a unit of each dimension counts in the objective: the weighted sum of the fullest bins.
    num_bins
        Bins, at least 1. Bins may stay empty only where there are fewer items than bins.

    Returns
    -------
    list of int
        For each item its bin; bins are numbered in the order of their first item.
    """
    if num_bins == 1 or len(sizes) == 1:
        return [0] * len(sizes)
    num_bins = min(num_bins, len(sizes))
    start = _greedy(sizes, weights, num_bins)
    if _objective(sizes, weights, start, num_bins) <= _least(sizes, weights, num_bins) + 1e-9:
        return _renumber(start)
    return _renumber(_Model(sizes, weights, num_bins, start).solve())


def _greedy(sizes: Sequence[Sequence[int]], weights: Sequence[float], num_bins: int) -> list[int]:
    """Largest item first, to the bin where the objective grows least; the first items go to empty bins."""
    placed = [0] * len(sizes)
    loads = [[0] * len(weights) for _ in range(num_bins)]
    used = [False] * num_bins
    tops = [0] * len(weights)
    order = sorted(range(len(sizes)), key=lambda i: (-_weighted(sizes[i], weights), i))
    for rank, item in enumerate(order):
        must_open = len(order) - rank <= used.count(False)

        keys = []
        for b, load in enumerate(loads):
            after = [held + size for held, size in zip(load, sizes[item], strict=True)]
            growth = _weighted([max(0, a - top) for a, top in zip(after, tops, strict=True)], weights)
            keys.append((must_open and used[b], growth, _weighted(load, weights), b))
        chosen = min(keys)[-1]
        placed[item], used[chosen] = chosen, True
        loads[chosen] = [load + size for load, size in zip(loads[chosen], sizes[item], strict=True)]
        tops = [max(top, load) for top, load in zip(tops, loads[chosen], strict=True)]
    return placed


def _weighted(size: Sequence[int], weights: Sequence[float]) -> float:
    return sum(s * w for s, w in zip(size, weights, strict=True))


def _objective(sizes: Sequence[Sequence[int]], weights: Sequence[float], bins: Sequence[int], num_bins: int) -> float:
    loads = [[0] * len(weights) for _ in range(num_bins)]
    for size, b in zip(sizes, bins, strict=True):
        loads[b] = [load + s for load, s in zip(loads[b], size, strict=True)]
    return sum(w * max(load[d] for load in loads) for d, w in enumerate(weights))


def _least(sizes: Sequence[Sequence[int]], weights: Sequence[float], num_bins: int) -> float:
    """Objective that no assignment beats: the mean, or the largest item."""
    return sum(
        w * max(-(-sum(size[d] for size in sizes) // num_bins), max(size[d] for size in sizes))
        for d, w in enumerate(weights)
    )


def _renumber(bins: Sequence[int]) -> list[int]:
    number: dict[int, int] = {}
    return [number.setdefault(b, len(number)) for b in bins]


class _Model:
    """Counts of equal items in each bin; a bin each dimension's fullest is bounded by."""

    def __init__(
        self, sizes: Sequence[Sequence[int]], weights: Sequence[float], num_bins: int, start: Sequence[int]
    ) -> None:
        self.sizes = [tuple(size) for size in sizes]
        self.num_bins, self.start = num_bins, start
        self.kinds = list(Counter(self.sizes).items())
        self.model = cp_model.CpModel()
        self.counts = [[self.model.new_int_var(0, many, "") for _ in range(num_bins)] for _, many in self.kinds]
        self.place_every_item()
        self.open_every_bin()
        self.minimize_fullest(weights)
        self.hint()

    def place_every_item(self) -> None:
        """Every item is in one bin: for each kind k, sum over b of x[k, b] = number of items of kind k."""
        for (_, many), row in zip(self.kinds, self.counts, strict=True):
            self.model.add(sum(row) == many)

    def open_every_bin(self) -> None:
        """No bin is empty: for each b, sum over k of x[k, b] >= 1."""
        for b in range(self.num_bins):
            self.model.add(sum(row[b] for row in self.counts) >= 1)

    def minimize_fullest(self, weights: Sequence[float]) -> None:
        """Minimize sum over d of w[d] * top[d], with top[d] >= load of every bin in dimension d."""
        tops = []
        for d in range(len(weights)):
            top = self.model.new_int_var(0, sum(size[d] for size in self.sizes), "")
            for b in range(self.num_bins):
                load = sum(kind[d] * row[b] for (kind, _), row in zip(self.kinds, self.counts, strict=True))
                self.model.add(load <= top)
            tops.append(top)
        scale = 1000 / min(weights)  # the lightest dimension, of most units, still counts to a thousandth
        self.model.minimize(sum(round(w * scale) * top for w, top in zip(weights, tops, strict=True)))

    def hint(self) -> None:
        """Start from the greedy assignment."""
        given = Counter((size, b) for size, b in zip(self.sizes, self.start, strict=True))
        for (kind, _), row in zip(self.kinds, self.counts, strict=True):
            for b, count in enumerate(row):
                self.model.add_hint(count, given[kind, b])

    def solve(self) -> list[int]:
        """Best assignment within the deterministic time; the greedy one where the solver finds none."""
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.max_deterministic_time = MAX_DETERMINISTIC_TIME
        status = solver.solve(self.model)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return list(self.start)
        left = {
            kind: [b for b, count in enumerate(row) for _ in range(solver.value(count))]
            for (kind, _), row in zip(self.kinds, self.counts, strict=True)
        }
        for bins in left.values():
            bins.reverse()
        return [left[size].pop() for size in self.sizes]
