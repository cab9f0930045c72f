"""Shows that heuristics for bins leave none empty, say what they reach, and stop where no single step gains."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from planner_service.split.bins import TOLERANCE, exchange, largest_first

Case = tuple[np.ndarray, np.ndarray, int]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Sizes of some items in some dimensions, weights, and a number of bins that the items can fill."""
    items, dimensions = draw(st.integers(1, 9)), draw(st.integers(1, 3))
    rows = st.lists(st.integers(0, 50), min_size=dimensions, max_size=dimensions)
    sizes = np.array(draw(st.lists(rows, min_size=items, max_size=items)), dtype=np.int64)
    weights = draw(st.lists(st.floats(0.01, 10), min_size=dimensions, max_size=dimensions))
    return sizes, np.array(weights), draw(st.integers(1, items))


def objective(sizes: np.ndarray, weights: np.ndarray, num_bins: int, bins: np.ndarray) -> float:
    loads = np.zeros((num_bins, sizes.shape[1]), dtype=np.int64)
    np.add.at(loads, bins, sizes)
    return float(loads.max(axis=0) @ weights)


@settings(deadline=None)
@given(cases())
def test_no_bin_stays_empty(case: Case) -> None:
    sizes, weights, num_bins = case
    bins = largest_first(sizes, weights, num_bins)
    assert set(bins.tolist()) == set(range(num_bins))
    exchange(sizes, weights, num_bins, bins)
    assert set(bins.tolist()) == set(range(num_bins))


@settings(deadline=None)
@given(cases())
def test_exchanging_ends_where_no_move_and_no_exchange_gains(case: Case) -> None:
    sizes, weights, num_bins = case
    bins = largest_first(sizes, weights, num_bins)
    before = objective(sizes, weights, num_bins, bins)
    reached = exchange(sizes, weights, num_bins, bins)
    assert np.isclose(reached, objective(sizes, weights, num_bins, bins))
    assert reached <= before * (1 + TOLERANCE)
    least = reached * (1 - 2 * TOLERANCE)
    for i in range(len(bins)):
        for b in range(num_bins):
            if (bins == bins[i]).sum() > 1:
                moved = bins.copy()
                moved[i] = b
                assert objective(sizes, weights, num_bins, moved) >= least
    for i, j in combinations(range(len(bins)), 2):
        swapped = bins.copy()
        swapped[[i, j]] = swapped[[j, i]]
        assert objective(sizes, weights, num_bins, swapped) >= least


def test_the_largest_goes_first_and_equals_to_the_emptiest_bin() -> None:
    sizes = np.array([[2], [5], [4], [3]], dtype=np.int64)
    assert largest_first(sizes, np.array([1.0]), 2).tolist() == [0, 0, 1, 1]
