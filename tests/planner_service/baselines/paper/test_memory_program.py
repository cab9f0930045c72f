"""Shows that memory ways fit and are at most 5% from the least time, by brute force on tiny ranks."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from planner_service.baselines.paper.candidates import MOST, Candidates
from planner_service.baselines.paper.cover import cover
from planner_service.baselines.paper.memory_program import GAP, Pairs, added_us, pairs_of, solve_rank


def candidates(tables: list[list[tuple[int, int]]]) -> Candidates:
    """Kinds with these (time, bytes), each from most bytes to fewest."""
    padded = [[*table, *[table[-1]] * (MOST - len(table))] for table in tables]
    values = np.array(padded, dtype=np.int64)
    return Candidates(
        kind=np.arange(len(tables)),
        ways=tuple(tuple((("way", k + 1),) for k in range(len(table))) for table in tables),
        forward_us=np.zeros_like(values[:, :, 0]),
        backward_us=values[:, :, 0],
        kept_bytes=values[:, :, 1],
    )


def table(steps: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Candidates that each take more time and keep less than the one before."""
    time, kept = 0, sum(size for _, size in steps)
    made = []
    for slower, smaller in steps:
        made.append((time, kept))
        time, kept = time + slower, kept - smaller
    return [*made, (time, kept)]


steps = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 20)), min_size=1, max_size=2)
spans = st.tuples(st.integers(0, 3), st.integers(1, 3))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(steps, spans), min_size=1, max_size=4), st.floats(0.0, 1.0))
def test_ways_fit_and_take_at_most_5_percent_more_than_the_best(
    drawn: list[tuple[list[tuple[int, int]], tuple[int, int]]], tightness: float
) -> None:
    kinds = candidates([table(listed) for listed, _ in drawn])
    pairs = [Pairs(kind=i, first=f, last=f + span, cells=(i,)) for i, (_, (f, span)) in enumerate(drawn)]

    def held(places: tuple[int, ...]) -> int:
        peaks = np.zeros(8, dtype=np.int64)
        for pair, k in zip(pairs, places, strict=True):
            peaks[pair.first : pair.last] += kinds.kept_bytes[pair.kind, k]
        return int(peaks.max())

    every = list(product(*(range(len(ways)) for ways in kinds.ways)))
    leanest = tuple(len(ways) - 1 for ways in kinds.ways)
    least, most = held(leanest), held((0,) * len(pairs))
    room = least + int(tightness * (most - least))
    best = min(added_us(kinds, pairs, [[k] for k in places]) for places in every if held(places) <= room)
    found = solve_rank(kinds, pairs, room, np.array(leanest))
    assert held(tuple(k for (k,) in found)) <= room
    assert added_us(kinds, pairs, found) <= best * (1 + GAP) + 1e-9


def test_pairs_that_are_alike_share_a_choice_of_counts() -> None:
    kinds = candidates([[(0, 10), (6, 4)]])
    alike = Pairs(kind=0, first=0, last=1, cells=(0, 1, 2))
    found = solve_rank(kinds, [alike], 20, np.array([1, 1, 1]))
    assert sorted(found[0]) == [0, 1, 1]


def test_peaks_are_where_forwards_end() -> None:
    """F0 F1 B0 F2 B1 B2: at the first peak 0 and 1 are held, at the second 1 and 2."""
    kinds = Candidates(
        kind=np.zeros(3, dtype=np.int64),
        ways=(((),),),
        forward_us=np.zeros((1, MOST), dtype=np.int64),
        backward_us=np.zeros((1, MOST), dtype=np.int64),
        kept_bytes=np.zeros((1, MOST), dtype=np.int64),
    )
    pairs = pairs_of(np.array([0, 1, 3, 2, 4, 5]), 3, kinds)
    assert {(pair.cells, pair.first, pair.last) for pair in pairs} == {((0,), 0, 1), ((1,), 0, 2), ((2,), 1, 2)}


def test_the_greedy_choice_says_where_nothing_fits() -> None:
    one = np.array([[5, 3]])
    assert cover(np.array([0]), np.array([1]), np.array([[0, 1]]), one, 2).tolist() == [-1]
    assert cover(np.array([0]), np.array([1]), np.array([[0, 1]]), one, 3).tolist() == [1]
    assert cover(np.array([0]), np.array([1]), np.array([[0, 1]]), one, 5).tolist() == [0]
