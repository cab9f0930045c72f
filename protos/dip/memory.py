"""Ways to run a chunk that keep less memory: how many of its layers use the leanest strategy they have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dip.costs import STORE

if TYPE_CHECKING:
    from dip.costs import Cost
    from dip.work import Way, Work


def leanest(work: Work, cell: int) -> list[tuple[str, int]]:
    """For each run of layers of a cell's chunk: its strategy that keeps least, the cheapest of equals; its length."""
    chunk, part = work.cell_chunk[cell], work.parts[work.cell_part[cell]]
    chosen = []
    for run, count in work.module_of(cell).runs_of(chunk.first_layer, chunk.num_layers):
        costs = {name: run.table.at(name, part.units, part.squares) for name in run.table.strategies}

        def weight(name: str, costs: dict[str, Cost] = costs) -> tuple[float, float]:
            cost = costs[name]
            return cost.activation_bytes, cost.forward_us + cost.backward_input_us + cost.backward_weight_us

        chosen.append((min(costs, key=weight), count))
    return chosen


def lean_way(work: Work, cell: int, num_lean: int) -> Way:
    """Way in which the first ``num_lean`` of the chunk's layers that can save memory do, and all others store."""
    way: list[tuple[str, int]] = []
    left = num_lean
    for name, count in leanest(work, cell):
        lean = min(left, count) if name != STORE else 0
        left -= lean
        for strategy, layers in ((name, lean), (STORE, count - lean)):
            if not layers:
                continue
            if way and way[-1][0] == strategy:
                way[-1] = strategy, way[-1][1] + layers
            else:
                way.append((strategy, layers))
    return () if all(name == STORE for name, _ in way) else tuple(way)


def max_lean(work: Work, cell: int) -> int:
    """How many of a cell's layers can save memory."""
    return sum(count for name, count in leanest(work, cell) if name != STORE)
