"""Simulated annealing over what the decoder is fed, compiled.

The state is a priority for each forward and backward, the start times of the schedule that they decode to; the order
in which memory is promised; how thrifty each cell is with memory, and how much weight halves may hold. A move shifts a
whole group, the cells of one sub-microbatch, of one chunk, or a few single tasks in time, or makes some cells thriftier
or less so; the decoder makes a schedule of it, and gives up as soon as that cannot be accepted. Groups and
sub-microbatches move first, single tasks later, as measured to work best.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from planner_service.compiling import kernel
from planner_service.search.decoders import NEVER, Decoded, Guide, decode

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from planner_service.domain.graph import Ints, TaskGraph

REACH = 0.1
"""Farthest that a move shifts a task, as a share of the makespan."""

SINGLES, SINGLE_REACH = 5, 0.5
"""Most single tasks that one move shifts, and how far, as a share of what others are shifted."""

SWAPS, HOARDS = 0.3, 0.1
"""Share of thrifty moves that let groups change places, and that change what weight halves may hold."""

THRIFT_STEP, HOARD_STEP = 0.3, 0.1
"""Standard deviations of what such moves add."""

BY_MODULE, BY_GROUP, BY_PART = 0.3, 0.4, 0.55
"""Share of thrifty moves that are of a module; of other moves that are of a group, or of a sub-microbatch."""

ONE_WAY = 0.35
"""Share of shifts that are of forwards alone, and of backwards alone."""


class Walk(NamedTuple):
    """State of an annealing run between calls.

    Parameters
    ----------
    guide, makespan_us
        What the current schedule was made from, and its end.
    best_guide, best
        What the best schedule so far was made from, and the schedule.
    """

    guide: Guide
    makespan_us: int
    best_guide: Guide
    best: Decoded


class Moves(NamedTuple):
    """What moves together, and how far.

    Parameters
    ----------
    part
        [n] Sub-microbatch of each cell.
    place, module
        [n] Chunk and module of each cell.
    many
        How many moves to take.
    temperature
        Microseconds by which a schedule may get worse with probability 1/e.
    coarse
        Share of moves that shift groups, sub-microbatches or chunks rather than single tasks.
    thrifty
        Share of moves that change who is lean.
    """

    part: Ints
    place: Ints
    module: Ints
    many: int
    temperature: float
    coarse: float
    thrifty: float


@kernel
def anneal(graph: TaskGraph, walk: Walk, moves: Moves, seed: int) -> Walk:
    """Take some moves.

    Parameters
    ----------
    graph
        The tasks.
    walk
        Where to go on; its arrays are not changed.
    moves
        Which.
    seed
        Of the random choices.
    """
    np.random.seed(seed)
    n = graph.rank.shape[0]
    current, current_us = walk.guide, walk.makespan_us
    best_guide, best = walk.best_guide, walk.best
    for _ in range(moves.many):
        tried = _moved(graph, current, moves, best.makespan_us)
        latest = current_us - moves.temperature * np.log(1.0 - np.random.random())
        found = decode(graph, tried, int(latest))
        if found.makespan_us == NEVER:
            continue
        for i in range(2 * n):
            tried.priority[i] = found.start[i]
        current, current_us = tried, found.makespan_us
        if found.makespan_us < best.makespan_us:
            best_guide, best = tried, found
    return Walk(current, current_us, best_guide, best)


@kernel
def _moved(graph: TaskGraph, guide: Guide, moves: Moves, makespan_us: int) -> Guide:
    """Return a neighbour of what a decoder was fed."""
    priority, thrift, position, hoard = guide.priority.copy(), guide.thrift, guide.position, guide.hoard
    if np.random.random() < moves.thrifty:
        which = np.random.random()
        if which < SWAPS:
            position = _swapped(position)
        elif which < SWAPS + HOARDS:
            hoard = max(0.0, hoard + np.random.normal() * HOARD_STEP)
        else:
            thrift = _shifted_thrift(graph, thrift, moves)
    else:
        reach = REACH * makespan_us * np.random.random() ** 2
        if np.random.random() < moves.coarse:
            _shift_together(graph, priority, moves, reach)
        else:
            for _ in range(np.random.randint(1, SINGLES + 1)):
                priority[np.random.randint(0, len(priority))] += np.random.normal() * reach * SINGLE_REACH
    return Guide(priority, position, guide.rule, guide.reserve, thrift, hoard, guide.careful)


@kernel
def _swapped(position: Ints) -> Ints:
    """Let two groups that are promised memory one after the other change places."""
    swapped = position.copy()
    if len(position) < 2:
        return swapped
    place = np.random.randint(0, len(position) - 1)
    for g in range(len(position)):
        if position[g] == place:
            swapped[g] = place + 1
        elif position[g] == place + 1:
            swapped[g] = place
    return swapped


@kernel
def _shifted_thrift(graph: TaskGraph, thrift: NDArray[np.float64], moves: Moves) -> NDArray[np.float64]:
    """Make the cells of a module, of a chunk, of a sub-microbatch or of a group thriftier, or less so."""
    shifted = thrift.copy()
    of_cell = moves.module if np.random.random() < BY_MODULE else _kind_of_move(graph, moves)
    chosen = of_cell[np.random.randint(0, len(of_cell))]
    shift = np.random.normal() * THRIFT_STEP
    for c in range(len(of_cell)):
        if of_cell[c] == chosen:
            shifted[c] = min(1.0, max(-1.0, shifted[c] + shift))
    return shifted


@kernel
def _shift_together(graph: TaskGraph, priority: NDArray[np.float64], moves: Moves, reach: float) -> None:
    """Shift the forwards, the backwards or both of the cells of a chunk, of a sub-microbatch or of a group."""
    n = graph.rank.shape[0]
    of_cell = _kind_of_move(graph, moves)
    chosen = of_cell[np.random.randint(0, n)]
    shift = np.random.normal() * reach
    which = np.random.random()
    for c in range(n):
        if of_cell[c] == chosen:
            if which < 1.0 - ONE_WAY:
                priority[c] += shift
            if which > ONE_WAY:
                priority[n + c] += shift


@kernel
def _kind_of_move(graph: TaskGraph, moves: Moves) -> Ints:
    which = np.random.random()
    if which < BY_GROUP:
        return graph.group
    return moves.part if which < BY_GROUP + BY_PART else moves.place
