"""Sharing layers among ranks: as even as layers allow, exchanged where that helps, and never more than a rank holds."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import pytest
from cases import job, module
from dip.job import Job
from dip.layers import share_layers
from hypothesis import given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def job_of(layers: Sequence[int], static: Sequence[int] = (), memory: Sequence[int] = (), ranks: int = 2) -> Job:
    """One module for each number of layers, each the input of the next, of these bytes a layer."""
    modules = [module(f"m{i}", many, inputs=[f"m{i - 1}"] if i else []) for i, many in enumerate(layers)]
    for made, size in zip(modules, static or [0] * len(layers), strict=True):
        made.layers[0].static_bytes = size
    return Job.from_spec(job(modules, ranks=ranks, memory_bytes=memory))


def totals(
    made: Job, counts: Sequence[Sequence[int]], ranks: Sequence[Sequence[int]], each: Sequence[float]
) -> list[float]:
    """For each rank the sum over layers of what each module's layer counts."""
    found = [0.0] * made.ranks
    for of_module, where, one in zip(counts, ranks, each, strict=True):
        for count, rank in zip(of_module, where, strict=True):
            found[rank] += count * one
    return found


def all_sharings(made: Job) -> Iterator[list[list[int]]]:
    """Layers of each module on each of two ranks, at least one on both."""
    for first in product(*(range(1, m.num_layers) for m in made.modules)):
        yield [[count, m.num_layers - count] for count, m in zip(first, made.modules, strict=True)]


TWO = [[0, 1], [0, 1]]
"""Both modules on both ranks."""


def test_layers_of_two_modules_are_exchanged_where_neither_alone_evens_out() -> None:
    """Of 3 long and 3 short layers, rank 0 gets two long ones and one short one: 2 * 10 + 6 against 10 + 2 * 6 ..."""
    made = job_of([3, 3])
    ranks, counts = share_layers(made, [30.0, 18.0], TWO)
    assert ranks == TWO
    busy = totals(made, counts, ranks, [10.0, 6.0])
    best = min(max(totals(made, sharing, TWO, [10.0, 6.0])) for sharing in all_sharings(made))
    assert max(busy) == best


@settings(deadline=None, max_examples=150)
@given(
    layers=st.tuples(st.integers(2, 8), st.integers(2, 8)),
    each=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    static=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    memory=st.tuples(st.integers(10, 90), st.integers(10, 90)),
)
def test_what_fits_two_ranks_is_found(
    layers: tuple[int, int], each: tuple[int, int], static: tuple[int, int], memory: tuple[int, int]
) -> None:
    """However tight and different the limits are, if one module's layers alone can be moved to meet them."""
    made = job_of(layers, static, memory)
    sharings = list(all_sharings(made))
    held = [totals(made, sharing, TWO, static) for sharing in sharings]
    fitting = [s for s, h in zip(sharings, held, strict=True) if all(b <= m for b, m in zip(h, memory, strict=True))]
    ranks, counts = share_layers(made, [many * t for many, t in zip(layers, each, strict=True)], TWO)
    found = totals(made, counts, ranks, static)
    lacking = max(b - m for b, m in zip(found, memory, strict=True))
    if fitting:
        assert lacking <= 0
        least = min(max(totals(made, sharing, TWO, each)) for sharing in fitting)
        assert max(totals(made, counts, ranks, each)) <= least + max(each)
    assert [sum(of_module) for of_module in counts] == list(layers)


def test_limits_that_differ_by_rank_are_met_even_where_two_modules_meet() -> None:
    """The long module fills rank 0 to its limit if it is cut by time alone: then not one layer of the other fits."""
    made = job_of([8, 4], static=[10, 10], memory=[50, 90])
    ranks, counts = share_layers(made, [80.0, 4.0], TWO)
    assert totals(made, counts, ranks, [10, 10]) == [50, 70]


def test_what_counts_as_busy_beforehand_gets_less() -> None:
    made = job_of([8])
    assert share_layers(made, [8.0], [[0, 1]], [0.0, 2.0]) == ([[0, 1]], [[5, 3]])


def test_a_narrow_module_goes_to_the_ranks_with_least_to_do_and_others_make_room() -> None:
    """Four layers on one of three ranks: the long module's layers go to the two others."""
    made = job_of([4, 14], ranks=3)
    ranks, counts = share_layers(made, [4.0, 14.0], [[0], [0, 1, 2]])
    assert sorted(totals(made, counts, ranks, [1.0, 1.0])) == [6, 6, 6]
    assert ranks[0] in ([0], [1], [2])


def test_a_narrow_module_stays_off_ranks_without_memory_for_it() -> None:
    made = job_of([2, 6], static=[50, 10], memory=[40, 40, 130], ranks=3)
    ranks, counts = share_layers(made, [1.0, 6.0], [[0], [0, 1, 2]])
    assert ranks[0] == [2]
    assert all(b <= m for b, m in zip(totals(made, counts, ranks, [50, 10]), [40, 40, 130], strict=True))


@pytest.mark.parametrize("slots", [[0, 1, 1, 0], [0, 1, 0, 1], [1, 0, 0, 1]])
def test_chunks_of_one_rank_share_its_layers_evenly(slots: list[int]) -> None:
    made = job_of([10])
    ranks, counts = share_layers(made, [10.0], [slots])
    assert ranks == [slots]
    assert sorted(counts[0]) == [2, 2, 3, 3]
