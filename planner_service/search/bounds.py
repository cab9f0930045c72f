"""Proven lower bounds on the makespan of any schedule of some work: whatever its order, strategies and splits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from dip.bounds import fastest_times, longest_chains
from numba import njit

if TYPE_CHECKING:
    from dip.work import Work

    from planner_service.domain.graph import Ints


def lower_bound_us(work: Work) -> int:
    """Largest of the longest chain and, for each rank, its preemptive one-machine bound.

    Every task of a rank has a head (the longest chain before it) and a tail (the longest after it), both with the
    fastest way of every layer. Running the released task of the longest tail, preemptively, solves this relaxation of
    one rank exactly (source: J. Carlier, "The one-machine sequencing problem", EJOR 11, 1982).

    Returns
    -------
    int
        Microseconds.
    """
    times = fastest_times(work)
    chains = longest_chains(work, times)
    bound = 0
    jobs: list[list[tuple[int, int, int]]] = [[] for _ in range(work.job.ranks)]
    for cell, time in enumerate(times):
        of_rank = jobs[work.cell_chunk[cell].rank]
        head, tail = chains.forward_head_us[cell], chains.forward_tail_us[cell]
        bound = max(bound, head + time.forward_us + tail)
        of_rank.append((head, time.forward_us, tail))
        if not work.has_backward(cell):
            continue
        head, tail = chains.gradient_head_us[cell], chains.backward_tail_us[cell]
        of_rank.append((head, time.gradient_us, tail))
        rest = time.total_us - time.forward_us - time.gradient_us
        if rest > 0:  # the weight half: after the input half, before nothing
            of_rank.append((head + time.gradient_us, rest, 0))
    for of_rank in jobs:
        if of_rank:
            bound = max(bound, int(preemptive_bound(np.array(of_rank, dtype=np.int64))))
    return bound


@njit(cache=True)
def preemptive_bound(jobs: Ints) -> int:
    """Shortest preemptive schedule of one machine, tails included.

    Parameters
    ----------
    jobs
        [k, 3] Head, duration and tail of each job, all in the same unit.
    """
    count = jobs.shape[0]
    by_head = np.argsort(jobs[:, 0])
    by_tail = np.argsort(-jobs[:, 2])
    place = np.empty(count, dtype=np.int64)
    place[by_tail] = np.arange(count)
    left = jobs[:, 1].copy()
    # A heap of released jobs by place: the longest tail on top.
    heap = np.empty(count, dtype=np.int64)
    size = 0
    now, bound, released = 0, 0, 0
    while released < count or size > 0:
        if size == 0:
            now = max(now, jobs[by_head[released], 0])
        while released < count and jobs[by_head[released], 0] <= now:
            i = size
            heap[i] = place[by_head[released]]
            size += 1
            released += 1
            while i > 0 and heap[(i - 1) // 2] > heap[i]:
                heap[i], heap[(i - 1) // 2] = heap[(i - 1) // 2], heap[i]
                i = (i - 1) // 2
        job = by_tail[heap[0]]
        until = now + left[job]
        if released < count:
            until = min(until, jobs[by_head[released], 0])
        left[job] -= until - now
        now = until
        if left[job] > 0:
            continue
        bound = max(bound, now + jobs[job, 2])
        size -= 1
        heap[0] = heap[size]
        i = 0
        while True:
            least = i
            for child in (2 * i + 1, 2 * i + 2):
                if child < size and heap[child] < heap[least]:
                    least = child
            if least == i:
                break
            heap[i], heap[least] = heap[least], heap[i]
            i = least
    return bound
