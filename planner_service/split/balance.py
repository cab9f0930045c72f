"""Balanced bins: which item goes where so that the fullest bin is as empty as it can be.

Largest first, then moves and exchanges, compiled; then CP-SAT, where a bound says that more may be gained.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from ortools.sat.python import cp_model

from planner_service.split.bins import exchange, largest_first

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_DETERMINISTIC_TIME = 0.02
"""What one split may cost the solver: its own unit, a few milliseconds, the same on every machine."""

LEAST_SPENT = 0.002
"""What asking CP-SAT costs at least, building the model included."""

WORTHWHILE = 0.005
"""Gap to the bound, as a share of it, from which on CP-SAT is asked."""


@dataclass(kw_only=True, slots=True)
class Effort:
    """What CP-SAT may still spend, in its own deterministic unit of time.

    Parameters
    ----------
    left
        How much; 0: CP-SAT is not asked.
    """

    left: float


def balance(sizes: Sequence[Sequence[int]], weights: Sequence[float], num_bins: int, effort: Effort) -> list[int]:
    """Assign items to bins.

    Parameters
    ----------
    sizes
        For each item its size in each dimension (module).
    weights
        How much a unit of each dimension counts in the objective: the weighted sum of the fullest bins.
    num_bins
        Bins, at least 1. Bins may stay empty only where there are fewer items than bins.
    effort
        What CP-SAT may spend; what it spends is taken off.

    Returns
    -------
    list of int
        For each item its bin; bins are numbered in the order of their first item.
    """
    if num_bins == 1 or len(sizes) == 1:
        return [0] * len(sizes)
    num_bins = min(num_bins, len(sizes))
    items, counts = np.array(sizes, dtype=np.int64), np.array(weights, dtype=np.float64)
    bins = largest_first(items, counts, num_bins)
    reached = exchange(items, counts, num_bins, bins)
    start = bins.tolist()
    if effort.left <= 0 or reached <= (1.0 + WORTHWHILE) * _least(sizes, weights, num_bins):
        return _renumber(start)
    return _renumber(_Model(sizes, weights, num_bins, start).solve(effort))


def _least(sizes: Sequence[Sequence[int]], weights: Sequence[float], num_bins: int) -> float:
    """Objective that no assignment beats: in each dimension the mean, the largest item, or the best pair that must be.

    One more of the largest items than there are bins: two of them share a bin. All sums are multiples of the sizes'
    greatest common divisor.
    """
    total = 0.0
    for d, weight in enumerate(weights):
        column = sorted((size[d] for size in sizes), reverse=True)
        step = math.gcd(*column) or 1
        mean = -(-sum(column) // (num_bins * step)) * step
        pair = column[num_bins - 1] + column[num_bins] if len(column) > num_bins else 0
        total += weight * max(mean, column[0], pair)
    return total


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
        """Start from what is known."""
        given = Counter((size, b) for size, b in zip(self.sizes, self.start, strict=True))
        for (kind, _), row in zip(self.kinds, self.counts, strict=True):
            for b, count in enumerate(row):
                self.model.add_hint(count, given[kind, b])

    def solve(self, effort: Effort) -> list[int]:
        """Best assignment within the effort; the one it started from where the solver finds none."""
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.max_deterministic_time = min(MAX_DETERMINISTIC_TIME, effort.left)
        status = solver.solve(self.model)
        effort.left -= max(solver.response_proto.deterministic_time, LEAST_SPENT)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return list(self.start)
        left = {
            kind: [b for b, count in enumerate(row) for _ in range(solver.value(count))]
            for (kind, _), row in zip(self.kinds, self.counts, strict=True)
        }
        for bins in left.values():
            bins.reverse()
        return [left[size].pop() for size in self.sizes]
