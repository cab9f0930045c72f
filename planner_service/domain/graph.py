"""The task graph as arrays: what compiled decoders and solvers read.

Tasks are numbered by phase: the forward of cell ``c`` is task ``c``, its backward (or the input half of it)
``n + c``, its weight half ``2n + c``, where ``n`` is the number of cells. A task that does not exist takes 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from dip.fallback import leanest_ways

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dip.memory import Way
    from dip.work import Work
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


class TaskGraph(NamedTuple):
    """Stage tasks of one batch with one choice of ways; a named tuple, so that compiled code reads it by field.

    Parameters
    ----------
    rank, group
        [n] Rank and group (sub-microbatches that depend on each other) of each cell.
    duration
        [3n] Microseconds of each task when all layers store; 0 where there is none.
    kept
        [n] Bytes that each cell then holds from its forward to the end of its backward; 0 where it has none.
    lean_duration, lean_kept
        The same when all layers that can save memory do. A lean cell's backward is never split: recomputed layers
        hold everything again between the halves.
    first, consumer, hop
        Edges by producer: those of cell ``c`` are ``first[c] : first[c + 1]`` ([n + 1]); each leads to the cell
        ``consumer`` and takes ``hop`` microseconds.
    back_first, producer, back_hop
        The same edges by consumer, with only those along which gradients return.
    inputs, gradients
        [n] How many edges lead to a cell, and how many gradients its backward waits for.
    has_backward
        [n] Whether a cell has a backward.
    need
        [groups, ranks] Bytes of a group's cells on each rank when all are lean: what it needs at least.
    room
        [ranks] Bytes that activations may take; -1: no limit.
    """

    rank: Ints
    group: Ints
    duration: Ints
    kept: Ints
    lean_duration: Ints
    lean_kept: Ints
    first: Ints
    consumer: Ints
    hop: Ints
    back_first: Ints
    producer: Ints
    back_hop: Ints
    inputs: Ints
    gradients: Ints
    has_backward: NDArray[np.bool_]
    need: Ints
    room: Ints

    @property
    def num_cells(self) -> int:
        """Number of cells, n."""
        return len(self.rank)

    @property
    def num_ranks(self) -> int:
        """Number of ranks."""
        return len(self.room)


def task_graph(work: Work, *, split: bool = False) -> TaskGraph:
    """Arrays of a batch's stage tasks, with the choice between storing and being lean left to the scheduler.

    Parameters
    ----------
    work
        The stage tasks.
    split
        Whether the backward of a cell that stores runs in two halves.
    """
    n, job = work.num_cells, work.job
    rank = np.array([chunk.rank for chunk in work.cell_chunk], dtype=np.int64)
    group = np.array(work.groups, dtype=np.int64)[np.array(work.cell_part, dtype=np.int64)]
    back = np.array([work.has_backward(cell) for cell in range(n)], dtype=np.bool_)
    duration, kept = _costs(work, [()] * n, np.full(n, split))
    limited = any(job.memory_bytes) and not work.forward_only
    lean = _costs(work, leanest_ways(work), np.zeros(n, dtype=np.bool_)) if limited else (duration, kept)
    edges = work.edges
    producer = np.array([edge.producer for edge in edges], dtype=np.int64)
    consumer = np.array([edge.consumer for edge in edges], dtype=np.int64)
    hop = np.array([edge.hop_us for edge in edges], dtype=np.int64)
    first, by_producer = _rows(producer, n)
    returns = np.flatnonzero(back[producer])
    back_first, by_consumer = _rows(consumer[returns], n)
    by_consumer = returns[by_consumer]
    need = np.zeros((int(group.max(initial=-1)) + 1, job.ranks), dtype=np.int64)
    np.add.at(need, (group, rank), lean[1])
    room = [limit - held if limit else -1 for limit, held in zip(job.memory_bytes, work.static_bytes, strict=True)]
    return TaskGraph(
        rank=rank,
        group=group,
        duration=duration,
        kept=kept,
        lean_duration=lean[0],
        lean_kept=lean[1],
        first=first,
        consumer=consumer[by_producer],
        hop=hop[by_producer],
        back_first=back_first,
        producer=producer[by_consumer],
        back_hop=hop[by_consumer],
        inputs=np.bincount(consumer, minlength=n).astype(np.int64),
        gradients=np.bincount(producer[returns], minlength=n).astype(np.int64),
        has_backward=back,
        need=need,
        room=np.array(room, dtype=np.int64),
    )


def fixed_graph(work: Work, graph: TaskGraph, ways: Sequence[Way], halves: NDArray[np.bool_]) -> TaskGraph:
    """Return the same tasks with the ways of all cells decided: nothing is left to the scheduler but the order.

    Parameters
    ----------
    work, graph
        The stage tasks, and their arrays.
    ways
        For each cell, how its layers run.
    halves
        [n] Which backwards are split.
    """
    duration, kept = _costs(work, ways, halves)
    need = np.zeros_like(graph.need)
    np.add.at(need, (graph.group, graph.rank), kept)
    return graph._replace(duration=duration, kept=kept, lean_duration=duration, lean_kept=kept, need=need)


def _costs(work: Work, ways: Sequence[Way], halves: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Durations [3n] and bytes held [n], those between the halves of a split backward included."""
    n = work.num_cells
    duration = np.zeros(3 * n, dtype=np.int64)
    kept = np.zeros(n, dtype=np.int64)
    for cell in range(n):
        cost = work.cost(cell, ways[cell])
        duration[cell] = cost.forward_us
        if not work.has_backward(cell):
            continue
        if halves[cell] and cost.backward_weight_us:
            duration[n + cell], duration[2 * n + cell] = cost.backward_input_us, cost.backward_weight_us
            kept[cell] = max(cost.kept_bytes, cost.split_kept_bytes)
        else:
            duration[n + cell] = cost.backward_us
            kept[cell] = cost.kept_bytes
    return duration, kept


def _rows(keys: Ints, n: int) -> tuple[Ints, Ints]:
    """Row starts [n + 1] and the stable order of items by their key."""
    starts = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(keys, minlength=n), out=starts[1:])
    return starts, np.argsort(keys, kind="stable")
