"""One rank alone, its tasks with windows: which must be last of some set, and hence start late; O(k log k).

Source: P. Vilim, "Global constraints in scheduling" (PhD thesis, Charles University, 2007), chapter 2: edge finding and
detectable precedences of one machine, and the tree that makes them fast. Write ``end(S)`` for the earliest end of a set
S of tasks: max over its subsets of earliest head plus total duration. Each rule holds in all schedules:

- overload: ``end(S) >`` the last deadline of S means that there is no schedule;
- edge finding: if ``end(S + {i}) >`` the last deadline of S, then i, not in S, comes after all of S: whichever task is
  last of ``S + {i}`` ends no earlier than the left side, which no task of S may. So i starts at ``end(S)`` or later;
- detectable precedences: if i cannot end before j must start (head plus duration of i > deadline minus duration of j),
  then j comes before i. With S all such j: i starts at ``end(S)`` or later.

Tasks in the tree are *white* (in S) or *grey* (at most one of them may be added to S), sorted by head from the left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from planner_service.compiling import kernel

if TYPE_CHECKING:
    from planner_service.domain.graph import Ints

BEFORE_ALL = -(1 << 60)
"""End of no tasks."""

NOBODY = -1
"""No grey task counts."""


class Tree(NamedTuple):
    """Heap-like binary tree over tasks sorted by head: node k has the children 2k and 2k + 1, leaves come last.

    Parameters
    ----------
    load, end
        Total duration and earliest end of the white tasks below a node.
    grey_load, grey_end
        The same, the largest that one grey task at most can make it.
    load_by, end_by
        That grey task; NOBODY where none makes it larger.
    """

    load: Ints
    end: Ints
    grey_load: Ints
    grey_end: Ints
    load_by: Ints
    end_by: Ints


@kernel
def raise_heads(head: Ints, deadline: Ints, duration: Ints) -> tuple[bool, Ints]:
    """Later heads that any schedule in the windows respects.

    Parameters
    ----------
    head, deadline, duration
        [k] Earliest start, latest end and duration of each task.

    Returns
    -------
    bool
        Whether the tasks may fit their windows; False is proof that they do not.
    Ints
        [k] The new heads, none earlier than before.
    """
    raised = head.copy()
    place = np.empty(head.shape[0], dtype=np.int64)
    place[np.argsort(head)] = np.arange(head.shape[0])
    fits = _after_sets(head, deadline, duration, place, raised)
    if fits:
        _after_detected(head, deadline, duration, place, raised)
    return fits, raised


@kernel
def _after_sets(head: Ints, deadline: Ints, duration: Ints, place: Ints, raised: Ints) -> bool:
    """Overload and edge finding: S is all white tasks, those of the latest deadlines turn grey one by one."""
    tree = _empty_tree(head.shape[0])
    for task in range(head.shape[0]):
        _set_white(tree, place[task], head[task], duration[task])
    for node in range(tree.load.shape[0] // 2 - 1, 0, -1):
        _join(tree, node)
    by_deadline = np.argsort(-deadline)
    for turn in range(head.shape[0]):
        task = by_deadline[turn]
        if tree.end[1] > deadline[task]:
            return False
        if turn + 1 == head.shape[0]:
            break
        _set_grey(tree, place[task], head[task], duration[task], task)
        _join_upwards(tree, place[task])
        latest = deadline[by_deadline[turn + 1]]
        while tree.grey_end[1] > latest and tree.end_by[1] != NOBODY:
            last = tree.end_by[1]
            raised[last] = max(raised[last], tree.end[1])
            _clear(tree, place[last])
            _join_upwards(tree, place[last])
    return True


@kernel
def _after_detected(head: Ints, deadline: Ints, duration: Ints, place: Ints, raised: Ints) -> None:
    """Detectable precedences: tasks by earliest end; S grows by all whose latest start lies before that."""
    tree = _empty_tree(head.shape[0])
    by_latest_start = np.argsort(deadline - duration)
    known = 0
    for task in np.argsort(head + duration):
        earliest_end = head[task] + duration[task]
        while known < head.shape[0]:
            other = by_latest_start[known]
            if earliest_end <= deadline[other] - duration[other]:
                break
            _set_white(tree, place[other], head[other], duration[other])
            _join_upwards(tree, place[other])
            known += 1
        inside = earliest_end > deadline[task] - duration[task]
        if inside:
            _clear(tree, place[task])
            _join_upwards(tree, place[task])
        raised[task] = max(raised[task], tree.end[1])
        if inside:
            _set_white(tree, place[task], head[task], duration[task])
            _join_upwards(tree, place[task])


@kernel
def _empty_tree(tasks: int) -> Tree:
    """Tree for so many tasks, all of them absent."""
    leaves = 1
    while leaves < tasks:
        leaves *= 2
    load, grey_load = np.zeros(2 * leaves, dtype=np.int64), np.zeros(2 * leaves, dtype=np.int64)
    end, grey_end = np.full(2 * leaves, BEFORE_ALL), np.full(2 * leaves, BEFORE_ALL)
    load_by, end_by = np.full(2 * leaves, NOBODY), np.full(2 * leaves, NOBODY)
    return Tree(load, end, grey_load, grey_end, load_by, end_by)


@kernel
def _set_white(tree: Tree, place: int, head: int, duration: int) -> None:
    """Put a task into S; what lies above its leaf is not joined yet, here and below."""
    leaf = tree.load.shape[0] // 2 + place
    tree.load[leaf], tree.end[leaf] = duration, head + duration
    tree.grey_load[leaf], tree.grey_end[leaf] = duration, head + duration
    tree.load_by[leaf], tree.end_by[leaf] = NOBODY, NOBODY


@kernel
def _set_grey(tree: Tree, place: int, head: int, duration: int, task: int) -> None:
    """Take a task out of S; it may be the one that is added."""
    leaf = tree.load.shape[0] // 2 + place
    tree.load[leaf], tree.end[leaf] = 0, BEFORE_ALL
    tree.grey_load[leaf], tree.grey_end[leaf] = duration, head + duration
    tree.load_by[leaf], tree.end_by[leaf] = task, task


@kernel
def _clear(tree: Tree, place: int) -> None:
    """Forget a task."""
    leaf = tree.load.shape[0] // 2 + place
    tree.load[leaf], tree.end[leaf] = 0, BEFORE_ALL
    tree.grey_load[leaf], tree.grey_end[leaf] = 0, BEFORE_ALL
    tree.load_by[leaf], tree.end_by[leaf] = NOBODY, NOBODY


@kernel
def _join_upwards(tree: Tree, place: int) -> None:
    """Join all nodes above a leaf."""
    node = (tree.load.shape[0] // 2 + place) // 2
    while node:
        _join(tree, node)
        node //= 2


@kernel
def _join(tree: Tree, node: int) -> None:
    """Make a node of its children: the later heads are on the right."""
    left, right = 2 * node, 2 * node + 1
    tree.load[node] = tree.load[left] + tree.load[right]
    tree.end[node] = max(tree.end[right], tree.end[left] + tree.load[right])
    with_left, with_right = tree.grey_load[left] + tree.load[right], tree.load[left] + tree.grey_load[right]
    if with_left >= with_right:
        tree.grey_load[node], tree.load_by[node] = with_left, tree.load_by[left]
    else:
        tree.grey_load[node], tree.load_by[node] = with_right, tree.load_by[right]
    tree.grey_end[node], tree.end_by[node] = tree.grey_end[right], tree.end_by[right]
    if tree.end[left] + tree.grey_load[right] > tree.grey_end[node]:
        tree.grey_end[node], tree.end_by[node] = tree.end[left] + tree.grey_load[right], tree.load_by[right]
    if tree.grey_end[left] + tree.load[right] > tree.grey_end[node]:
        tree.grey_end[node], tree.end_by[node] = tree.grey_end[left] + tree.load[right], tree.end_by[left]
