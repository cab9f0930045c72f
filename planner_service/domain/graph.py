"""The task graph as arrays: what compiled decoders and solvers read.

Tasks are numbered by phase: the forward of cell ``c`` is task ``c``, its backward (or the input half of it)
``n + c``, its weight half ``2n + c``, where ``n`` is the number of cells. A task that does not exist takes 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from dip.fallback import leanest_ways

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
        [3n] Microseconds of each task when all layers store; 0 where there is none. A cell has a weight half where
        its backward may be split.
    whole
        [n] Microseconds of each backward that is not split.
    kept
        [n] Bytes that each cell holds from its forward to the end of its backward, or to the start of its input half.
    between
        [n] Bytes that it holds from the start of its input half to the end of its weight half.
    lean_duration, lean_whole, lean_kept, lean_between
        The same when all layers that can save memory do.
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
        [groups, ranks] Bytes of a group's cells on each rank when all are lean and no backward is split: what it
        needs at least.
    room
        [ranks] Bytes that activations may take; -1: no limit.
    """

    rank: Ints
    group: Ints
    duration: Ints
    whole: Ints
    kept: Ints
    between: Ints
    lean_duration: Ints
    lean_whole: Ints
    lean_kept: Ints
    lean_between: Ints
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


class _Costs(NamedTuple):
    """What cells take and keep in one choice of ways: the arrays of the same names in a graph."""

    duration: Ints
    whole: Ints
    kept: Ints
    between: Ints


def task_graph(work: Work, *, split: bool = False) -> TaskGraph:
    """Arrays of a batch's stage tasks, with the choice between storing and being lean left to the scheduler.

    Parameters
    ----------
    work
        The stage tasks.
    split
        Whether the scheduler may run backwards in two halves.
    """
    n, job = work.num_cells, work.job
    rank = np.array([chunk.rank for chunk in work.cell_chunk], dtype=np.int64)
    group = np.array(work.groups, dtype=np.int64)[np.array(work.cell_part, dtype=np.int64)]
    trains = np.array([module.trains and not work.forward_only for module in job.modules], dtype=np.bool_)
    back = trains[np.array([chunk.module for chunk in work.cell_chunk], dtype=np.int64)]
    halves = back & split
    store = _costs(work, [()] * n, halves)
    limited = any(job.memory_bytes) and not work.forward_only
    lean = _costs(work, leanest_ways(work), halves) if limited else store
    edges = work.edges
    producer = np.array([edge.producer for edge in edges], dtype=np.int64)
    consumer = np.array([edge.consumer for edge in edges], dtype=np.int64)
    hop = np.array([edge.hop_us for edge in edges], dtype=np.int64)
    first, by_producer = _rows(producer, n)
    returns = np.flatnonzero(back[producer])
    back_first, by_consumer = _rows(consumer[returns], n)
    by_consumer = returns[by_consumer]
    need = np.zeros((int(group.max(initial=-1)) + 1, job.ranks), dtype=np.int64)
    np.add.at(need, (group, rank), lean.kept)
    room = [limit - held if limit else -1 for limit, held in zip(job.memory_bytes, work.static_bytes, strict=True)]
    return TaskGraph(
        rank=rank,
        group=group,
        duration=store.duration,
        whole=store.whole,
        kept=store.kept,
        between=store.between,
        lean_duration=lean.duration,
        lean_whole=lean.whole,
        lean_kept=lean.kept,
        lean_between=lean.between,
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
    fixed = _costs(work, ways, halves & graph.has_backward)
    need = np.zeros_like(graph.need)
    np.add.at(need, (graph.group, graph.rank), fixed.kept)
    return graph._replace(
        duration=fixed.duration,
        whole=fixed.whole,
        kept=fixed.kept,
        between=fixed.between,
        lean_duration=fixed.duration,
        lean_whole=fixed.whole,
        lean_kept=fixed.kept,
        lean_between=fixed.between,
        need=need,
    )


def _costs(work: Work, ways: Iterable[Way], halves: NDArray[np.bool_]) -> _Costs:
    """Costs of all cells, each looked up once for its kind and way."""
    known: dict[tuple[int, Way], int] = {}
    rows: list[tuple[int, int, int, int, int, int]] = []
    row_of: list[int] = []
    for cell, key in enumerate(zip(work.cell_kind, ways, strict=True)):
        row = known.get(key)
        if row is None:
            row = known[key] = len(rows)
            cost = work.cost(cell, key[1])
            backward = (cost.backward_us, cost.backward_input_us, cost.backward_weight_us)
            kept = (cost.kept_bytes, cost.split_kept_bytes)
            rows.append((cost.forward_us, *((*backward, *kept) if work.has_backward(cell) else (0,) * 5)))
        row_of.append(row)
    table = np.array(rows, dtype=np.int64).reshape(-1, 6)[np.array(row_of, dtype=np.int64)]
    forward, whole, given, weight, kept_bytes, between = np.ascontiguousarray(table.T)
    splits = halves & (weight > 0)
    duration = np.concatenate([forward, np.where(splits, given, whole), np.where(splits, weight, 0)])
    return _Costs(duration, whole, kept_bytes, np.where(splits, between, kept_bytes))


def _rows(keys: Ints, n: int) -> tuple[Ints, Ints]:
    """Row starts [n + 1] and the stable order of items by their key."""
    starts = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(np.bincount(keys, minlength=n), out=starts[1:])
    return starts, np.argsort(keys, kind="stable")
