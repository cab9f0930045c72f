"""Compiled heuristics for balanced bins: largest item first, then moves and exchanges.

The objective is the weighted sum, over dimensions, of the fullest bin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from planner_service.compiling import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

TOLERANCE = 1e-9
"""Share of the objective that counts as no gain."""


@kernel
def largest_first(sizes: Ints, weights: Floats, num_bins: int) -> Ints:
    """Largest item first, to the bin where the objective grows least, of equals to the emptiest.

    Parameters
    ----------
    sizes
        [items, dimensions] Sizes.
    weights
        [dimensions] What a unit counts.
    num_bins
        Bins, at most as many as items; none stays empty.

    Returns
    -------
    array
        [items] Bin of each item.
    """
    items, dimensions = sizes.shape
    weighted = np.zeros(items)
    for i in range(items):
        for d in range(dimensions):
            weighted[i] += sizes[i, d] * weights[d]
    loads = np.zeros((num_bins, dimensions), dtype=np.int64)
    filled = np.zeros(num_bins)
    used = np.zeros(num_bins, dtype=np.bool_)
    tops = np.zeros(dimensions, dtype=np.int64)
    bins = np.zeros(items, dtype=np.int64)
    empty = num_bins
    left = items
    for i in np.argsort(-weighted, kind="mergesort"):
        best, best_growth = -1, 0.0
        for b in range(num_bins):
            if left <= empty and used[b]:
                continue
            growth = 0.0
            for d in range(dimensions):
                growth += weights[d] * max(0, loads[b, d] + sizes[i, d] - tops[d])
            if best < 0 or (growth, filled[b]) < (best_growth, filled[best]):
                best, best_growth = b, growth
        bins[i] = best
        if not used[best]:
            used[best] = True
            empty -= 1
        left -= 1
        filled[best] += weighted[i]
        for d in range(dimensions):
            loads[best, d] += sizes[i, d]
            tops[d] = max(tops[d], loads[best, d])
    return bins


@kernel
def exchange(sizes: Ints, weights: Floats, num_bins: int, bins: Ints) -> float:
    """Move items, and exchange pairs of them, as long as the objective falls; the best step first.

    Parameters
    ----------
    sizes, weights, num_bins
        As in :func:`largest_first`.
    bins
        [items] Bin of each item; changed in place.

    Returns
    -------
    float
        The objective.
    """
    items, dimensions = sizes.shape
    loads = np.zeros((num_bins, dimensions), dtype=np.int64)
    count = np.zeros(num_bins, dtype=np.int64)
    for i in range(items):
        count[bins[i]] += 1
        for d in range(dimensions):
            loads[bins[i], d] += sizes[i, d]
    change = np.zeros(dimensions, dtype=np.int64)
    now = _objective(loads, weights, 0, 0, change)
    while True:
        best, best_i, best_j, best_bin = now * (1.0 - TOLERANCE), -1, -1, -1
        for i in range(items):
            for b in range(num_bins):
                if b == bins[i] or count[bins[i]] == 1:
                    continue
                for d in range(dimensions):
                    change[d] = sizes[i, d]
                reached = _objective(loads, weights, bins[i], b, change)
                if reached < best:
                    best, best_i, best_j, best_bin = reached, i, -1, b
            for j in range(i):
                if bins[j] == bins[i]:
                    continue
                for d in range(dimensions):
                    change[d] = sizes[i, d] - sizes[j, d]
                reached = _objective(loads, weights, bins[i], bins[j], change)
                if reached < best:
                    best, best_i, best_j, best_bin = reached, i, j, bins[j]
        if best_i < 0:
            return now
        old = bins[best_i]
        for d in range(dimensions):
            moved = sizes[best_i, d] - (sizes[best_j, d] if best_j >= 0 else 0)
            loads[old, d] -= moved
            loads[best_bin, d] += moved
        bins[best_i] = best_bin
        if best_j >= 0:
            bins[best_j] = old
        else:
            count[old] -= 1
            count[best_bin] += 1
        now = best


@kernel
def _objective(loads: Ints, weights: Floats, source: int, target: int, change: Ints) -> float:
    """Objective after ``change`` went from one bin to another."""
    total = 0.0
    for d in range(loads.shape[1]):
        top = 0
        for b in range(loads.shape[0]):
            load = loads[b, d]
            if b == source:
                load -= change[d]
            if b == target:
                load += change[d]
            top = max(top, load)
        total += weights[d] * top
    return total
