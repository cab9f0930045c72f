"""Compiled list scheduling: from a priority for each task to a schedule that cannot deadlock on memory.

The rank that can start something first goes next (as in the paper's interleaving); among what it can start by then it
takes the task of the lowest priority value, or forwards and backwards in turn. What memory allows is kept by
:mod:`planner_service.search.admission`. A forward whose layers cannot all store without taking room that is promised
or held in reserve runs lean; a backward is split wherever the job allows it and the memory held between its halves is
there. Weight halves, which nothing waits for, run when nothing else can start, or when they hold too much.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from planner_service.compiling import bare_kernel, inlined, kernel
from planner_service.search.admission import (
    LEAN,
    REFUSED,
    Memory,
    begin_forward,
    change,
    finish,
    forward_way,
    may_grow,
    new_memory,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from planner_service.domain.graph import Ints, TaskGraph

NEVER = 1 << 62
"""A time that does not come."""

UNIFIED, ALTERNATE = 0, 1
"""Rules of choice: by priority alone; or forward and backward in turn where both can start, as 1F1B does."""


class Guide(NamedTuple):
    """What a decoder is fed.

    Parameters
    ----------
    priority
        [2n] Of each forward and each backward (or input half): the lowest goes first.
    position
        [groups] Place of each group in the order in which memory is promised.
    rule
        UNIFIED or ALTERNATE.
    reserve
        Share of a rank's room that cells which store leave free: the more, the more layers are lean and the more
        groups can be in flight.
    thrift
        [n] What each cell adds to its reserve.
    hoard
        Share of a rank's room that cells whose weight half waits may hold; above it, weight halves go first.
    careful
        Whether memory is promised by groups, so that no order gets stuck; without it more is in flight.
    """

    priority: NDArray[np.float64]
    position: Ints
    rule: int
    reserve: float
    thrift: NDArray[np.float64]
    hoard: float
    careful: bool


class Decoded(NamedTuple):
    """A schedule.

    Parameters
    ----------
    start
        [3n] Start of each task; -1 where there is none. A backward whose weight half has no start is whole.
    makespan_us
        End of the last task; NEVER if the decoder got stuck, or the end would come after the time that was asked for.
    lean
        [n] Cells whose layers are lean.
    """

    start: Ints
    makespan_us: int
    lean: NDArray[np.bool_]


class _State(NamedTuple):
    """What is known while a schedule is made. A rank has 2 queues: its forwards (0) and its backwards (1).

    Parameters
    ----------
    start, lean
        As in the result.
    ready, missing
        [2n] When the inputs known so far are there, and how many are not known yet.
    queue, first, queued
        Tasks with all inputs known, the next to go last: those of queue q of rank r are
        ``queue[first[q, r] : first[q, r] + queued[q, r]]``.
    weights, first_weight, last_weight
        Cells of each rank whose weight half waits: ``weights[first_weight[r] : last_weight[r]]``.
    free, soonest
        [ranks] End of the last task, and when the next can start.
    hoarded
        [ranks] Bytes of cells whose weight half waits.
    left
        [ranks] Work that a rank has still to do, if all layers store.
    last
        [ranks] Queue that the last task came from.
    memory
        Who may hold what.
    """

    start: Ints
    lean: NDArray[np.bool_]
    ready: Ints
    missing: Ints
    queue: Ints
    first: Ints
    queued: Ints
    weights: Ints
    first_weight: Ints
    last_weight: Ints
    free: Ints
    soonest: Ints
    hoarded: Ints
    left: Ints
    last: Ints
    memory: Memory


@kernel
def decode(graph: TaskGraph, guide: Guide, latest_us: int = NEVER) -> Decoded:
    """Schedule every task.

    Parameters
    ----------
    graph
        The tasks. Where every group fits alone on every rank, no priorities get a careful guide stuck.
    guide
        Priorities and rules.
    latest_us
        Give up as soon as some rank cannot end by then.
    """
    state = _new_state(graph, guide)
    makespan = _fill(graph, guide, state, latest_us)
    return Decoded(state.start, makespan, state.lean)


@bare_kernel
def _fill(graph: TaskGraph, guide: Guide, state: _State, latest_us: int) -> int:
    """Run all tasks; returns the end of the last one, NEVER if some cannot run, or not by ``latest_us``."""
    ranks = graph.room.shape[0]
    makespan, unscheduled = 0, graph.rank.shape[0]
    for c in range(graph.rank.shape[0]):
        unscheduled += graph.has_backward[c]
        if state.missing[c] == 0:
            _enqueue(guide, state, 0, graph.rank[c], c)
            if _way(graph, guide, state, c) != REFUSED:
                state.soonest[graph.rank[c]] = 0
    while True:
        r = 0
        for other in range(1, ranks):
            if state.soonest[other] < state.soonest[r]:
                r = other
        if state.soonest[r] == NEVER:
            return makespan if unscheduled == 0 else NEVER
        task = _pick(graph, guide, state, r)
        if task < 0:
            end = _run_weight(graph, guide, state, r)
        else:
            end = _run(graph, guide, state, r, task)
            unscheduled -= 1
        if end + state.left[r] > latest_us:
            return NEVER
        state.free[r] = end
        makespan = max(makespan, end)
        state.soonest[r] = _soonest(graph, guide, state, r)


@kernel
def _new_state(graph: TaskGraph, guide: Guide) -> _State:
    """Nothing run yet; forwards that wait for nothing queued."""
    n, ranks = graph.rank.shape[0], graph.room.shape[0]
    missing = np.empty(2 * n, dtype=np.int64)
    first = np.zeros((2, ranks), dtype=np.int64)
    left = np.zeros(ranks, dtype=np.int64)
    for c in range(n):
        missing[c] = graph.inputs[c]
        missing[n + c] = graph.gradients[c] + 1
        first[0, graph.rank[c]] += 1
        left[graph.rank[c]] += graph.duration[c] + graph.duration[n + c] + graph.duration[2 * n + c]
    total = 0
    for r in range(ranks):
        cells = first[0, r]
        first[0, r], first[1, r] = total, n + total
        total += cells
    return _State(
        np.full(3 * n, -1, dtype=np.int64),
        np.zeros(n, dtype=np.bool_),
        np.zeros(2 * n, dtype=np.int64),
        missing,
        np.empty(2 * n, dtype=np.int64),
        first,
        np.zeros((2, ranks), dtype=np.int64),
        np.empty(n, dtype=np.int64),
        first[0].copy(),
        first[0].copy(),
        np.zeros(ranks, dtype=np.int64),
        np.full(ranks, NEVER, dtype=np.int64),
        np.zeros(ranks, dtype=np.int64),
        left,
        np.ones(ranks, dtype=np.int64),
        new_memory(graph, guide.position, guide.careful),
    )


@inlined
def _enqueue(guide: Guide, state: _State, q: int, r: int, task: int) -> None:
    """Put a task in its place in its queue."""
    low = state.first[q, r]
    i = low + state.queued[q, r]
    priority = guide.priority[task]
    while i > low and guide.priority[state.queue[i - 1]] <= priority:
        state.queue[i] = state.queue[i - 1]
        i -= 1
    state.queue[i] = task
    state.queued[q, r] += 1


@inlined
def _way(graph: TaskGraph, guide: Guide, state: _State, cell: int) -> int:
    """What memory allows a forward."""
    return forward_way(graph, guide.position, state.memory, cell, guide.reserve + guide.thrift[cell])


@inlined
def _next(graph: TaskGraph, guide: Guide, state: _State, q: int, r: int, now: int) -> int:
    """Place of the first task in a queue that can start by ``now``; -1 if there is none."""
    for i in range(state.first[q, r] + state.queued[q, r] - 1, state.first[q, r] - 1, -1):
        task = state.queue[i]
        if state.ready[task] > now:
            continue
        if q == 1 or _way(graph, guide, state, task) != REFUSED:
            return i
    return -1


@inlined
def _pick(graph: TaskGraph, guide: Guide, state: _State, r: int) -> int:
    """Take the task that a rank starts next out of its queue; -1: a weight half is next."""
    now = state.soonest[r]
    if state.memory.held[r] >= 0 and state.hoarded[r] > guide.hoard * graph.room[r]:
        return -1
    q = 1 - state.last[r] if guide.rule == ALTERNATE else 0
    place = _next(graph, guide, state, q, r, now)
    if place < 0 or guide.rule == UNIFIED:
        other = _next(graph, guide, state, 1 - q, r, now)
        if place < 0 or (other >= 0 and guide.priority[state.queue[other]] < guide.priority[state.queue[place]]):
            q, place = 1 - q, other
    if place < 0:
        return -1
    task = state.queue[place]
    state.queued[q, r] -= 1
    for i in range(place, state.first[q, r] + state.queued[q, r]):
        state.queue[i] = state.queue[i + 1]
    return int(task)


@inlined
def _run(graph: TaskGraph, guide: Guide, state: _State, r: int, task: int) -> int:
    """Run a forward or a backward; returns its end."""
    n = graph.rank.shape[0]
    begin = max(state.free[r], state.ready[task])
    state.start[task] = begin
    state.left[r] -= graph.duration[task]
    if task < n:
        state.last[r] = 0
        return _run_forward(graph, guide, state, task, begin)
    state.last[r] = 1
    return _run_backward(graph, guide, state, task - n, begin)


@inlined
def _run_forward(graph: TaskGraph, guide: Guide, state: _State, cell: int, begin: int) -> int:
    n = graph.rank.shape[0]
    way = _way(graph, guide, state, cell)
    state.lean[cell] = way == LEAN
    end = begin + (graph.lean_duration[cell] if state.lean[cell] else graph.duration[cell])
    if graph.has_backward[cell]:
        begin_forward(graph, guide.position, state.memory, cell, state.lean[cell])
        _arrive(graph, guide, state, n + cell, end)
    for i in range(graph.first[cell], graph.first[cell + 1]):
        _arrive(graph, guide, state, graph.consumer[i], end + graph.hop[i])
    return int(end)


@inlined
def _run_backward(graph: TaskGraph, guide: Guide, state: _State, cell: int, begin: int) -> int:
    n, r = graph.rank.shape[0], graph.rank[cell]
    lean = state.lean[cell]
    kept = graph.lean_kept[cell] if lean else graph.kept[cell]
    duration = graph.lean_duration if lean else graph.duration
    more = (graph.lean_between[cell] if lean else graph.between[cell]) - kept
    if duration[2 * n + cell] > 0 and (more <= 0 or may_grow(graph, guide.position, state.memory, cell, more)):
        change(graph, guide.position, state.memory, cell, more)
        state.weights[state.last_weight[r]] = cell
        state.last_weight[r] += 1
        state.hoarded[r] += kept + more
        end = begin + duration[n + cell]
    else:
        finish(graph, guide.position, state.memory, cell, kept)
        state.left[r] -= graph.duration[2 * n + cell]
        end = begin + (graph.lean_whole[cell] if lean else graph.whole[cell])
    for i in range(graph.back_first[cell], graph.back_first[cell + 1]):
        _arrive(graph, guide, state, n + graph.producer[i], end + graph.back_hop[i])
    return int(end)


@inlined
def _run_weight(graph: TaskGraph, guide: Guide, state: _State, r: int) -> int:
    """Run the weight half that waits longest; returns its end."""
    n = graph.rank.shape[0]
    cell = state.weights[state.first_weight[r]]
    state.first_weight[r] += 1
    state.start[2 * n + cell] = state.free[r]
    state.left[r] -= graph.duration[2 * n + cell]
    lean = state.lean[cell]
    size = graph.lean_between[cell] if lean else graph.between[cell]
    state.hoarded[r] -= size
    finish(graph, guide.position, state.memory, cell, size)
    return int(state.free[r] + (graph.lean_duration if lean else graph.duration)[2 * n + cell])


@inlined
def _arrive(graph: TaskGraph, guide: Guide, state: _State, task: int, when: int) -> None:
    """Give a task one more of its inputs."""
    state.ready[task] = max(state.ready[task], when)
    state.missing[task] -= 1
    if state.missing[task] > 0:
        return
    n = graph.rank.shape[0]
    q, cell = (0, task) if task < n else (1, task - n)
    r = graph.rank[cell]
    _enqueue(guide, state, q, r, task)
    start = max(state.free[r], state.ready[task])
    if start < state.soonest[r] and (q == 1 or _way(graph, guide, state, cell) != REFUSED):
        state.soonest[r] = start


@inlined
def _soonest(graph: TaskGraph, guide: Guide, state: _State, r: int) -> int:
    """When a rank can start its next task; NEVER while it waits for inputs or memory."""
    free = int(state.free[r])
    if state.last_weight[r] > state.first_weight[r]:
        return free
    soonest = NEVER
    for q in (1, 0):
        for i in range(state.first[q, r] + state.queued[q, r] - 1, state.first[q, r] - 1, -1):
            task = state.queue[i]
            when = max(free, int(state.ready[task]))
            if when >= soonest:
                continue
            if q == 1 or _way(graph, guide, state, task) != REFUSED:
                soonest = when
                if when == free:
                    return free
    return soonest
