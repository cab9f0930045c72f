"""A proven lower bound from loads and chains: what no order and no memory strategy can beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dip.costs import duration_us

if TYPE_CHECKING:
    from dip.work import Work


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
    known: dict[int, Fastest] = {}
    for cell, kind in enumerate(work.cell_kind):
        if kind not in known:
            known[kind] = _fastest(work, cell)
    return [known[kind] for kind in work.cell_kind]


def _fastest(work: Work, cell: int) -> Fastest:
    chunk, part, module = work.cell_chunk[cell], work.parts[work.cell_part[cell]], work.module_of(cell)
    forward = given = weight = whole = 0.0
    for run, count in module.runs_of(chunk.first_layer, chunk.num_layers):
        costs = [run.table.at(name, part.units, part.squares) for name in run.table.strategies]
        weights = [0.0 if module.frozen else cost.backward_weight_us for cost in costs]
        forward += count * min(cost.forward_us for cost in costs)
        given += count * min(cost.backward_input_us for cost in costs)
        weight += count * min(weights)
        whole += count * min(cost.backward_input_us + w for cost, w in zip(costs, weights, strict=True))
    speed = work.job.speed[chunk.rank]
    forward_us = duration_us(forward, speed)
    if not work.has_backward(cell):
        return Fastest(forward_us=forward_us, gradient_us=0, total_us=forward_us)
    backward_us = gradient_us = duration_us(whole, speed)
    if work.job.split_backward:
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
        Before the start of the task that gives the cell's gradient.
    forward_tail_us
        After the end of the cell's forward.
    """

    forward_head_us: list[int]
    forward_tail_us: list[int]
    gradient_head_us: list[int]
    backward_tail_us: list[int]


def longest_chains(work: Work, times: list[Fastest]) -> Chains:
    """Longest chains before and after every task."""
    num = work.num_cells
    edges = sorted(work.edges, key=lambda edge: _place(work, edge.producer))
    head = [0] * num
    for edge in edges:
        head[edge.consumer] = max(
            head[edge.consumer], head[edge.producer] + times[edge.producer].forward_us + edge.hop_us
        )
    gradient = [head[cell] + times[cell].forward_us for cell in range(num)]
    for edge in reversed(edges):
        if work.has_backward(edge.producer):
            ready = gradient[edge.consumer] + times[edge.consumer].gradient_us + edge.hop_us
            gradient[edge.producer] = max(gradient[edge.producer], ready)
    tail = [0] * num
    for edge in edges:
        if work.has_backward(edge.producer):
            left = tail[edge.producer] + times[edge.producer].gradient_us + edge.hop_us
            tail[edge.consumer] = max(tail[edge.consumer], left)
    forward_tail = [tail[cell] + times[cell].gradient_us for cell in range(num)]
    for edge in reversed(edges):
        left = edge.hop_us + times[edge.consumer].forward_us + forward_tail[edge.consumer]
        forward_tail[edge.producer] = max(forward_tail[edge.producer], left)
    return Chains(forward_head_us=head, forward_tail_us=forward_tail, gradient_head_us=gradient, backward_tail_us=tail)


def _place(work: Work, cell: int) -> tuple[int, int, int]:
    """Place of a cell in an order in which producers come before consumers."""
    part = work.cell_part[cell]
    return work.parts[part].microbatch, work.parts[part].module, cell


def chain_bound_us(work: Work) -> int:
    """Largest of: the longest chain; on each rank, earliest head plus load plus shortest tail.

    No schedule of this work is shorter, whatever its order, its strategies and its split backwards.
    """
    times = fastest_times(work)
    chains = longest_chains(work, times)
    bound = 0
    load = [0] * work.job.ranks
    heads: list[list[int]] = [[] for _ in load]
    tails: list[list[int]] = [[] for _ in load]
    for cell, time in enumerate(times):
        rank = work.cell_chunk[cell].rank
        load[rank] += time.total_us
        heads[rank].append(chains.forward_head_us[cell])
        # With a split backward the weight half may come after everything: nothing need follow it.
        last_is_weight = work.job.split_backward and time.gradient_us and not work.module_of(cell).frozen
        tails[rank].append(0 if last_is_weight else chains.backward_tail_us[cell])
        if not time.gradient_us:
            tails[rank][-1] = chains.forward_tail_us[cell]
        bound = max(bound, chains.forward_head_us[cell] + time.forward_us + chains.forward_tail_us[cell])
    for rank, amount in enumerate(load):
        if amount:
            bound = max(bound, min(heads[rank]) + amount + min(tails[rank]))
    return bound
