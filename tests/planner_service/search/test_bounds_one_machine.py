"""The preemptive one-machine bound: equal to what trying every set of tasks finds."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from planner_service.search.bounds.one_machine import preemptive_bound

JOBS = st.lists(st.tuples(st.integers(0, 12), st.integers(1, 6), st.integers(0, 15)), min_size=1, max_size=7)


def by_subsets(jobs: list[tuple[int, int, int]]) -> int:
    """The same bound by its dual: over all sets of jobs, earliest head plus load plus shortest tail."""
    best = 0
    for chosen in range(1, 1 << len(jobs)):
        inside = [job for i, job in enumerate(jobs) if chosen >> i & 1]
        heads, times, tails = zip(*inside, strict=True)
        best = max(best, min(heads) + sum(times) + min(tails))
    return best


def bound(jobs: list[tuple[int, int, int]]) -> int:
    head, duration, tail = np.array(jobs, dtype=np.int64).reshape(-1, 3).T
    return int(preemptive_bound(head, duration, tail))


@settings(deadline=None)
@given(JOBS)
def test_it_is_the_worst_of_all_sets_of_jobs(jobs: list[tuple[int, int, int]]) -> None:
    """Carlier: Jackson's preemptive schedule is as long as the worst set's head, load and tail."""
    assert bound(jobs) == by_subsets(jobs)


def test_many_jobs_that_come_at_once_are_their_load_and_the_shortest_tail() -> None:
    jobs = [(5, 1 + k % 7, k % 11 + 2) for k in range(500)]
    assert bound(jobs) == 5 + sum(1 + k % 7 for k in range(500)) + 2


def test_no_jobs_take_no_time() -> None:
    assert bound([]) == 0
