"""First priorities: the orders that local search starts from."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from planner_service.compiling import kernel
from planner_service.search.decoders import ALTERNATE, UNIFIED, Guide

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from planner_service.domain.graph import Ints, TaskGraph

LEVEL, WAVE, FAR = 1e4, 1e9, 1e15
"""Steps between priorities: more than there are groups, more than any depth times that, more than all waves."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pattern:
    """How a seed orders groups and their tasks.

    Parameters
    ----------
    order
        Order of groups: see :func:`group_orders`.
    width
        Groups in a wave, in multiples of the number of ranks; 0: all groups are one wave.
    by_depth
        Whether a wave goes through the pipeline together, a segment after the other, rather than group by group.
    first
        What goes first where both can start: "forwards", "backwards", or "turns" as in 1F1B.
    """

    order: str
    width: int
    by_depth: bool
    first: str

    def __str__(self) -> str:
        wave = f"waves of {self.width} a rank" if self.width else "one wave"
        return f"{self.order}, {wave}{' by depth' if self.by_depth else ''}, {self.first} first"


FAVOURITES = (
    Pattern(order="hill", width=1, by_depth=True, first="backwards"),
    Pattern(order="rising", width=1, by_depth=True, first="turns"),
    Pattern(order="hill", width=1, by_depth=False, first="turns"),
    Pattern(order="rising", width=1, by_depth=False, first="backwards"),
)
"""Patterns that won most often when measured on the paper's set-ups, with and without memory limits."""


def seed_guides(graph: TaskGraph, reserve: float = 0.0, hoard: float = 1.0) -> Iterator[tuple[str, Guide]]:
    """Guides worth a try, the most promising first, each with its name: by longest tail, then by all patterns."""
    natural, even = np.arange(len(graph.need)), np.zeros(graph.num_cells)
    longest = -np.concatenate(tails(graph))
    yield "longest tail, turns first", Guide(longest, natural, ALTERNATE, reserve, even, hoard, True)
    depth = depths(graph)
    orders = group_orders(graph)
    for pattern in dict.fromkeys((*FAVOURITES, *_all_patterns(orders))):
        guide = _guide(graph, pattern, orders[pattern.order], depth)
        yield str(pattern), guide._replace(reserve=reserve, hoard=hoard)
    yield "longest tail", Guide(longest, natural, UNIFIED, reserve, even, hoard, True)


def _all_patterns(orders: Iterable[str]) -> Iterator[Pattern]:
    for width, order, by_depth, first in product((0, 1, 2), orders, (False, True), ("turns", "backwards", "forwards")):
        yield Pattern(order=order, width=width, by_depth=by_depth, first=first)


def _guide(graph: TaskGraph, pattern: Pattern, order: Ints, depth: NDArray[np.float64]) -> Guide:
    position = np.empty_like(order)
    position[order] = np.arange(len(order))
    place = position[graph.group].astype(np.float64)
    wave = place // (pattern.width * graph.num_ranks) * WAVE if pattern.width else 0.0
    level = depth * LEVEL if pattern.by_depth else np.zeros_like(depth)
    late = {"turns": 0.0, "forwards": FAR, "backwards": -FAR}[pattern.first]
    forward = wave + level + place
    backward = wave + level.max(initial=0.0) - level + place + late
    rule = ALTERNATE if pattern.first == "turns" else UNIFIED
    return Guide(np.concatenate([forward, backward]), position, rule, 0.0, np.zeros(graph.num_cells), 1.0, True)


def group_orders(graph: TaskGraph) -> dict[str, Ints]:
    """Orders of groups: as they come, by load up and down, and up then down (short ramps at both ends)."""
    load = np.zeros(len(graph.need), dtype=np.int64)
    np.add.at(load, graph.group, graph.duration.reshape(3, -1).sum(axis=0))
    rising = np.argsort(load, kind="stable")
    return {
        "natural": np.arange(len(load)),
        "rising": rising,
        "hill": np.concatenate([rising[0::2], rising[1::2][::-1]]),
        "falling": rising[::-1].copy(),
    }


@kernel
def topological(graph: TaskGraph) -> Ints:
    """Cells, producers before consumers."""
    n = graph.rank.shape[0]
    missing = graph.inputs.copy()
    order = np.empty(n, dtype=np.int64)
    known = 0
    for c in range(n):
        if missing[c] == 0:
            order[known] = c
            known += 1
    for done in range(n):
        c = order[done]
        for i in range(graph.first[c], graph.first[c + 1]):
            consumer = graph.consumer[i]
            missing[consumer] -= 1
            if missing[consumer] == 0:
                order[known] = consumer
                known += 1
    return order


@kernel
def tails(graph: TaskGraph) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Longest chain from the start of each cell's forward, and of its backward, to the end; microseconds."""
    n = graph.rank.shape[0]
    forward = np.zeros(n)
    backward = np.zeros(n)
    order = topological(graph)
    for c in order:
        backward[c] += graph.duration[n + c]
        if graph.has_backward[c]:
            for i in range(graph.first[c], graph.first[c + 1]):
                consumer = graph.consumer[i]
                backward[consumer] = max(backward[consumer], backward[c] + graph.hop[i])
    for c in order[::-1]:
        longest = backward[c]
        for i in range(graph.first[c], graph.first[c + 1]):
            longest = max(longest, graph.hop[i] + forward[graph.consumer[i]])
        forward[c] = longest + graph.duration[c]
    return forward, backward


@kernel
def depths(graph: TaskGraph) -> NDArray[np.float64]:
    """Number of cells on the longest chain that leads to each cell."""
    depth = np.zeros(graph.rank.shape[0])
    for c in topological(graph):
        for i in range(graph.first[c], graph.first[c + 1]):
            depth[graph.consumer[i]] = max(depth[graph.consumer[i]], depth[c] + 1)
    return depth
