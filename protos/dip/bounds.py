"""A proven lower bound from loads and chains: what no order and no memory strategy can beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dip.costs import duration_us

if TYPE_CHECKING:
    from dip.work import Kind, Work


@dataclass(frozen=True, kw_only=True, slots=True)
class Fastest:
    """Least that a cell takes in any strategy, phase by phase, in microseconds.

    Parameters
    ----------
    forward_us
        Its forward.
    gradient_us
        What gives the gradient that the cell before waits for: the input half where the job allows the split, else
        the whole backward; 0 where it has none.
    total_us
        All that the cell asks of its rank.
    """

    forward_us: int
    gradient_us: int
    total_us: int


def fastest_times(work: Work) -> list[Fastest]:
    """Least times of every cell."""
    of_kind = [_fastest(work, kind) for kind in work.kinds]
    return [of_kind[kind] for kind in work.cell_kind]


def _fastest(work: Work, kind: Kind) -> Fastest:
    chunk, job = kind.chunk, work.job
    module, speed = job.modules[chunk.module], job.speed[chunk.rank]
    forward = given = weight = whole = 0.0
    for run, count in job.cost_book.runs(chunk):
        costs = [run.table.at(name, kind.units, kind.squares) for name in run.table.strategies]
        weights = [0.0 if module.frozen else cost.backward_weight_us for cost in costs]
        forward += count * min(cost.forward_us for cost in costs)
        given += count * min(cost.backward_input_us for cost in costs)
        weight += count * min(weights)
        whole += count * min(cost.backward_input_us + w for cost, w in zip(costs, weights, strict=True))
    forward_us = duration_us(forward, speed)
    if work.forward_only or not module.trains:
        return Fastest(forward_us=forward_us, gradient_us=0, total_us=forward_us)
    backward_us = gradient_us = duration_us(whole, speed)
    if job.split_backward:
        gradient_us = min(backward_us, duration_us(given, speed))
        halves = duration_us(given, speed) + (0 if module.frozen else duration_us(weight, speed))
        backward_us = min(backward_us, halves)
    return Fastest(forward_us=forward_us, gradient_us=gradient_us, total_us=forward_us + backward_us)


@dataclass(frozen=True, kw_only=True, slots=True)
class Chains:
    """Longest chains through the stage tasks, by cell, when no rank is ever busy; microseconds.

    Parameters
    ----------
    forward_head_us
        Before the start of the cell's forward.
    backward_tail_us
        After the end of the task that gives the cell's gradient; after its forward, where it has no backward.
    gradient_head_us
        Before the start of the task that gives the cell's gradient; 0 where it has no backward.
    forward_tail_us
        After the end of the cell's forward.
    """

    forward_head_us: list[int]
    forward_tail_us: list[int]
    gradient_head_us: list[int]
    backward_tail_us: list[int]


def longest_chains(work: Work, times: list[Fastest]) -> Chains:
    """Longest chains before and after every task."""
    n, successors = work.num_cells, work.successors
    forwards = _in_order(work)
    rows = forwards + [n + cell for cell in reversed(forwards)]
    length = [time.forward_us for time in times] + [time.gradient_us for time in times]
    head, tail = [0] * (2 * n), [0] * (2 * n)
    for row in rows:
        done = head[row] + length[row]
        for later, hop in successors[row]:
            if head[later] < done + hop:
                head[later] = done + hop
    for row in reversed(rows):
        tail[row] = max([hop + length[later] + tail[later] for later, hop in successors[row]], default=0)
    return Chains(
        forward_head_us=head[:n], forward_tail_us=tail[:n], gradient_head_us=head[n:], backward_tail_us=tail[n:]
    )


def _in_order(work: Work) -> list[int]:
    """All cells, producers before consumers."""
    parts = sorted(range(len(work.parts)), key=lambda p: (work.parts[p].microbatch, work.parts[p].module))
    return [cell for p in parts for cell in range(work.first_cell[p], work.last_cell(p) + 1)]


def chain_bound_us(work: Work) -> int:
    """Largest of: the longest chain; on each rank, earliest head plus load plus shortest tail.

    No schedule of this work is shorter, whatever its order, its strategies and its split backwards.
    """
    times = fastest_times(work)
    chains = longest_chains(work, times)
    bound, ranks = 0, range(work.job.ranks)
    load = [0 for _ in ranks]
    heads: list[list[int]] = [[] for _ in ranks]
    tails: list[list[int]] = [[] for _ in ranks]
    cells = zip(work.cell_rank, times, chains.forward_head_us, chains.forward_tail_us, strict=True)
    for cell, (rank, time, head, tail) in enumerate(cells):
        bound = max(bound, head + time.forward_us + tail)
        load[rank] += time.total_us
        heads[rank].append(head)
        if time.gradient_us:
            # With a split backward the weight half may come after everything: nothing need follow it.
            last_is_weight = work.job.split_backward and not work.module_of(cell).frozen
            tail = 0 if last_is_weight else chains.backward_tail_us[cell]
        tails[rank].append(tail)
    for rank, amount in enumerate(load):
        if amount:
            bound = max(bound, min(heads[rank]) + amount + min(tails[rank]))
    return bound
