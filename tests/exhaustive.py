"""The shortest schedule of a tiny batch by trying all of them: every order, every strategy, every split backward.

Memory is taken as unlimited. Orders are enumerated as active schedules (source: B. Giffler and G. L. Thompson,
"Algorithms for solving production-scheduling problems", Operations Research 8, 1960), one of which is optimal; a branch
is given up only where what is left of a rank, or of a chain, already takes it to the best schedule found.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dip.memory import Way
    from dip.work import Work
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


def shortest_us(work: Work, most_modes: int = 1024) -> int | None:
    """Least makespan of any schedule; None where there are more than ``most_modes`` ways to run the cells."""
    modes = [_undominated(_modes(work, cell)) for cell in range(work.num_cells)]
    if np.prod([len(of_cell) for of_cell in modes], dtype=float) > most_modes:
        return None
    table = np.zeros((work.num_cells, max(map(len, modes)), 3), dtype=np.int64)
    for cell, of_cell in enumerate(modes):
        table[cell, : len(of_cell)] = of_cell
    counts = np.array([len(of_cell) for of_cell in modes], dtype=np.int64)
    rank = np.array([chunk.rank for chunk in work.cell_chunk], dtype=np.int64)
    return int(_search(table, counts, rank, _arcs(work)))


def ways_of(work: Work, cell: int) -> Iterator[Way]:
    """Every way to run the layers of a cell."""
    chunk = work.cell_chunk[cell]
    runs = work.module_of(cell).runs_of(chunk.first_layer, chunk.num_layers)
    layers = [run.table.strategies for run, count in runs for _ in range(count)]
    return (tuple((name, 1) for name in names) for names in product(*layers))


def _modes(work: Work, cell: int) -> set[tuple[int, int, int]]:
    """Forward, gradient task and weight half (0: none) in every way."""
    modes: set[tuple[int, int, int]] = set()
    for way in ways_of(work, cell):
        cost = work.cost(cell, way)
        if not work.has_backward(cell):
            modes.add((cost.forward_us, 0, 0))
            continue
        modes.add((cost.forward_us, cost.backward_us, 0))
        if work.job.split_backward:
            modes.add((cost.forward_us, cost.backward_input_us, cost.backward_weight_us))
    return modes


def _undominated(modes: set[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Modes that no other beats in each of the three tasks; one with no weight half beats one with."""
    return sorted(
        mode
        for mode in modes
        if not any(other != mode and all(a <= b for a, b in zip(other, mode, strict=True)) for other in modes)
    )


def _arcs(work: Work) -> Ints:
    """Precedence [k, 3]: from, to, hop; forwards are tasks 0.., gradient tasks n.., weight halves 2n.."""
    n = work.num_cells
    arcs = [(c, n + c, 0) for c in range(n) if work.has_backward(c)]
    arcs += [(n + c, 2 * n + c, 0) for c in range(n) if work.has_backward(c)]
    for edge in work.edges:
        arcs.append((edge.producer, edge.consumer, edge.hop_us))
        if work.has_backward(edge.producer):
            arcs.append((n + edge.consumer, n + edge.producer, edge.hop_us))
    return np.array(arcs, dtype=np.int64).reshape(-1, 3)


@njit(cache=True)
def _search(table: Ints, counts: Ints, rank: Ints, arcs: Ints) -> int:
    """Best makespan over all combinations of modes."""
    n = rank.shape[0]
    mode = np.zeros(n, dtype=np.int64)
    duration = np.zeros(3 * n, dtype=np.int64)
    best = 1 << 60
    while True:
        for c in range(n):
            for phase in range(3):
                duration[phase * n + c] = table[c, mode[c], phase]
        best = _best_order(duration, rank, arcs, best)
        c = 0
        while c < n:
            mode[c] += 1
            if mode[c] < counts[c]:
                break
            mode[c] = 0
            c += 1
        if c == n:
            return best


@njit(cache=True)
def _best_order(duration: Ints, rank: Ints, arcs: Ints, best: int) -> int:
    """Best makespan over all orders, ``best`` where none is shorter; tasks that take 0 do not exist."""
    n = rank.shape[0]
    ranks = rank.max() + 1
    tail = np.zeros(3 * n, dtype=np.int64)
    for _ in range(3 * n):  # the longest chain after each task; a pass for each link of the longest one
        changed = False
        for k in range(arcs.shape[0]):
            a, b, hop = arcs[k]
            if duration[b] and hop + duration[b] + tail[b] > tail[a]:
                tail[a] = hop + duration[b] + tail[b]
                changed = True
        if not changed:
            break
    total = 0
    for task in range(3 * n):
        total += duration[task] > 0
    # One row a depth: what is ready when, what waits for how many, how far each rank is, what it has left.
    ready = np.zeros((total + 1, 3 * n), dtype=np.int64)
    missing = np.zeros((total + 1, 3 * n), dtype=np.int64)
    free = np.zeros((total + 1, ranks), dtype=np.int64)
    left = np.zeros((total + 1, ranks), dtype=np.int64)
    machine = np.full(total + 1, -1, dtype=np.int64)
    limit = np.zeros(total + 1, dtype=np.int64)
    at = np.zeros(total + 1, dtype=np.int64)
    for k in range(arcs.shape[0]):
        if duration[arcs[k, 0]]:
            missing[0, arcs[k, 1]] += 1
    for task in range(3 * n):
        left[0, rank[task % n]] += duration[task]
        if not duration[task]:
            missing[0, task] = -1
    depth = 0
    while depth >= 0:
        if machine[depth] < 0:  # first visit: prune, or choose the rank on which to branch
            bound = 0
            for r in range(ranks):
                bound = max(bound, free[depth, r] + left[depth, r])
            soonest = 1 << 60
            for task in range(3 * n):
                if missing[depth, task] == 0:
                    r = rank[task % n]
                    end = max(ready[depth, task], free[depth, r]) + duration[task]
                    bound = max(bound, end + tail[task])
                    if end < soonest:
                        soonest, machine[depth], limit[depth] = end, r, end
            if bound >= best:
                machine[depth] = -1
                depth -= 1
                continue
            if depth == total:
                best = bound
                depth -= 1
                continue
            at[depth] = 0
        chosen = -1
        for task in range(at[depth], 3 * n):
            r = rank[task % n]
            on_time = max(ready[depth, task], free[depth, r]) < limit[depth]
            if missing[depth, task] == 0 and r == machine[depth] and on_time:
                chosen = task
                break
        if chosen < 0:
            machine[depth] = -1
            depth -= 1
            continue
        at[depth] = chosen + 1
        ready[depth + 1], missing[depth + 1] = ready[depth], missing[depth]
        free[depth + 1], left[depth + 1] = free[depth], left[depth]
        depth += 1
        r = rank[chosen % n]
        end = max(ready[depth, chosen], free[depth, r]) + duration[chosen]
        free[depth, r] = end
        left[depth, r] -= duration[chosen]
        missing[depth, chosen] = -1
        for k in range(arcs.shape[0]):
            if arcs[k, 0] == chosen and duration[arcs[k, 1]]:
                missing[depth, arcs[k, 1]] -= 1
                ready[depth, arcs[k, 1]] = max(ready[depth, arcs[k, 1]], end + arcs[k, 2])
    return best
