"""Balanced bins: no better assignment exists on small cases, in one dimension and in two."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner_service.split.balance import Effort, balance

if TYPE_CHECKING:
    from collections.abc import Sequence

SLOW = settings(max_examples=60, deadline=None)


def objective(sizes: Sequence[Sequence[int]], weights: Sequence[float], bins: Sequence[int]) -> float:
    """Weighted sum, over dimensions, of the fullest bin."""
    loads: dict[tuple[int, int], int] = {}
    for size, b in zip(sizes, bins, strict=True):
        for d, units in enumerate(size):
            loads[b, d] = loads.get((b, d), 0) + units
    return sum(w * max(units for (_, of), units in loads.items() if of == d) for d, w in enumerate(weights))


def least(sizes: Sequence[Sequence[int]], weights: Sequence[float], num_bins: int) -> float:
    """Best of all assignments that leave no bin empty."""
    every = product(range(num_bins), repeat=len(sizes))
    return min(objective(sizes, weights, bins) for bins in every if len(set(bins)) == min(num_bins, len(sizes)))


@SLOW
@given(st.lists(st.integers(1, 50), min_size=1, max_size=7), st.integers(1, 3))
def test_one_dimension_is_balanced_as_well_as_it_can_be(units: list[int], num_bins: int) -> None:
    sizes = [(u,) for u in units]
    bins = balance(sizes, [1.0], num_bins, Effort(left=1.0))
    assert len(set(bins)) == min(num_bins, len(sizes))
    assert objective(sizes, [1.0], bins) == least(sizes, [1.0], min(num_bins, len(sizes)))


@SLOW
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 400)), min_size=2, max_size=6), st.integers(2, 3))
def test_two_dimensions_are_balanced_together(sizes: list[tuple[int, int]], num_bins: int) -> None:
    weights = [1.0 / max(1, sum(size[d] for size in sizes)) for d in range(2)]
    many = min(num_bins, len(sizes))
    found = objective(sizes, weights, balance(sizes, weights, num_bins, Effort(left=1.0)))
    assert found <= least(sizes, weights, many) * 1.002 + 1e-9  # the solver counts in thousandths


@pytest.mark.parametrize("order", [1, -1])
def test_a_dimension_of_few_units_does_not_silence_one_of_many(order: int) -> None:
    """Clips of 100,000 latent tokens with captions of a few: the clips decide, in whichever order they stand."""
    sizes = [(60_000, 1), (60_000, 1), (40_000, 1), (40_000, 1), (40_000, 1)]  # largest first is not best here
    sizes = [size[::order] for size in sizes]
    weights = [1.0 / sum(size[d] for size in sizes) for d in range(2)]
    assert objective(sizes, weights, balance(sizes, weights, 2, Effort(left=1.0))) == pytest.approx(120 / 240 + 3 / 5)


def test_bins_are_numbered_by_their_first_item_and_always_the_same() -> None:
    sizes = [(7,), (3,), (5,), (5,), (9,), (1,), (8,), (2,)]
    bins = balance(sizes, [1.0], 3, Effort(left=1.0))
    assert list(dict.fromkeys(bins)) == [0, 1, 2]
    assert all(balance(sizes, [1.0], 3, Effort(left=1.0)) == bins for _ in range(3))


def test_equal_items_keep_their_order() -> None:
    assert balance([(4,)] * 6, [1.0], 3, Effort(left=1.0)) in ([0, 0, 1, 1, 2, 2], [0, 1, 2, 0, 1, 2])


@pytest.mark.parametrize(("count", "num_bins", "expected"), [(1, 4, [0]), (3, 1, [0, 0, 0]), (2, 5, [0, 1])])
def test_bins_stay_empty_only_where_items_run_out(count: int, num_bins: int, expected: list[int]) -> None:
    assert balance([(10,)] * count, [1.0], num_bins, Effort(left=1.0)) == expected
