"""Edge finding: heads are raised as far as its rules say of all sets, and never past what some schedule shows."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from planner_service.search.bounds.edge_finding import raise_heads

Task = tuple[int, int, int]
"""Head, deadline, duration."""

TASKS = st.lists(
    st.tuples(st.integers(0, 12), st.integers(1, 6), st.integers(0, 14)).map(lambda t: (t[0], sum(t), t[1])),
    min_size=1,
    max_size=6,
)


def raised(tasks: list[Task]) -> list[int] | None:
    """New heads; None where there is proof that nothing fits."""
    head, deadline, duration = np.array(tasks, dtype=np.int64).T
    fits, later = raise_heads(head, deadline, duration)
    return later.tolist() if fits else None


def earliest_starts(tasks: list[Task]) -> list[int] | None:
    """Earliest start of each task in any schedule; None where there is none."""
    best = [1 << 30] * len(tasks)
    for order in permutations(range(len(tasks))):
        now, starts = 0, {}
        for i in order:
            head, deadline, duration = tasks[i]
            starts[i] = max(now, head)
            now = starts[i] + duration
            if now > deadline:
                break
        else:
            best = [min(best[i], starts[i]) for i in range(len(tasks))]
    return best if min(best) < 1 << 30 else None


def end(tasks: list[Task]) -> int:
    """Earliest end of a set: over its subsets, earliest head plus load."""
    subsets = (inside for k in range(1, len(tasks) + 1) for inside in combinations(tasks, k))
    return max(min(t[0] for t in inside) + sum(t[2] for t in inside) for inside in subsets)


def by_the_rules(tasks: list[Task]) -> list[int]:
    """New heads by the rules as they are stated, with S all tasks whose deadline is not after some time."""
    heads = [head for head, _, _ in tasks]
    for i, (head, _, duration) in enumerate(tasks):
        for last in {deadline for _, deadline, _ in tasks}:
            others = [t for j, t in enumerate(tasks) if j != i and t[1] <= last]
            if others and end([*others, tasks[i]]) > max(t[1] for t in others):
                heads[i] = max(heads[i], end(others))
        before = [t for j, t in enumerate(tasks) if j != i and head + duration > t[1] - t[2]]
        if before:
            heads[i] = max(heads[i], end(before))
    return heads


@settings(deadline=None, max_examples=300)
@given(TASKS)
def test_no_schedule_starts_a_task_earlier(tasks: list[Task]) -> None:
    known, later = earliest_starts(tasks), raised(tasks)
    if known is None:
        return
    assert later is not None
    assert all(a <= b for a, b in zip(later, known, strict=True))


@settings(deadline=None, max_examples=300)
@given(TASKS)
def test_it_finds_what_its_rules_say(tasks: list[Task]) -> None:
    overloaded = any(end([t for t in tasks if t[1] <= last]) > last for last in {deadline for _, deadline, _ in tasks})
    later = raised(tasks)
    assert (later is None) == overloaded
    if later is not None:
        assert all(a >= b for a, b in zip(later, by_the_rules(tasks), strict=True))


def test_what_cannot_come_first_or_between_comes_last() -> None:
    """Two tasks of 4 fill 0..9 but for 1; the third, of 3, starts when they are done."""
    assert raised([(0, 9, 4), (1, 9, 4), (0, 20, 3)]) == [0, 1, 8]


def test_what_must_come_before_is_waited_for() -> None:
    """The first has to start by 3, and the second cannot end before 6."""
    assert raised([(0, 8, 5), (2, 30, 4)]) == [0, 5]


def test_too_much_for_the_time_is_proof() -> None:
    assert raised([(2, 10, 4), (3, 10, 4), (30, 50, 4)]) is not None
    assert raised([(2, 9, 4), (3, 9, 4), (30, 50, 4)]) is None
