"""One rank alone, its tasks with heads and tails, preemption allowed: solved exactly.

Theorem (J. Carlier, "The one-machine sequencing problem", EJOR 11, 1982). The shortest preemptive schedule always runs
the released task of the longest tail (J. R. Jackson's rule); its length is the largest, over all sets of tasks, of
earliest head plus total duration plus shortest tail, which no schedule of that set on one machine can beat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from planner_service.compiling import kernel

if TYPE_CHECKING:
    from planner_service.domain.graph import Ints


@kernel
def preemptive_bound(head: Ints, duration: Ints, tail: Ints) -> int:
    """Length of the shortest preemptive schedule of one machine, tails included; 0 where there is no task.

    Parameters
    ----------
    head, duration, tail
        [k] Those of each task, all in the same unit; durations above 0.
    """
    count = head.shape[0]
    by_head = np.argsort(head)
    by_tail = np.argsort(-tail)
    place = np.empty(count, dtype=np.int64)
    place[by_tail] = np.arange(count)
    left = duration.copy()
    # A heap of released tasks by place: the longest tail on top.
    heap = np.empty(count, dtype=np.int64)
    size = 0
    now, bound, released = 0, 0, 0
    while released < count or size > 0:
        if size == 0:
            now = max(now, head[by_head[released]])
        while released < count and head[by_head[released]] <= now:
            _push(heap, size, place[by_head[released]])
            size += 1
            released += 1
        task = by_tail[heap[0]]
        until = now + left[task]
        if released < count:
            until = min(until, head[by_head[released]])
        left[task] -= until - now
        now = until
        if left[task] == 0:
            bound = max(bound, now + tail[task])
            size -= 1
            _pop(heap, size)
    return bound


@kernel
def _push(heap: Ints, size: int, item: int) -> None:
    """Add an item to a heap of so many, the smallest on top."""
    at = size
    while at > 0 and heap[(at - 1) // 2] > item:
        heap[at] = heap[(at - 1) // 2]
        at = (at - 1) // 2
    heap[at] = item


@kernel
def _pop(heap: Ints, size: int) -> None:
    """Take the top off a heap that is left with so many items."""
    item = heap[size]
    at = 0
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= item:
            break
        heap[at] = heap[child]
        at = child
    heap[at] = item
