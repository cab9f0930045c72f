"""First priorities: the orders that local search starts from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from planner_service.search.decoders import ALTERNATE, UNIFIED, Guide

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from planner_service.domain.graph import Ints, TaskGraph

FAR = 1e15
"""More than any priority: what separates forwards from backwards where one kind always goes first."""


def seed_guides(graph: TaskGraph) -> Iterator[tuple[str, Guide]]:
    """Guides worth a try, the most promising first, each with its name.

    By longest tail; then, for groups in several orders and in waves of several widths, forwards by wave, depth and
    group, backwards likewise in the reverse depth: 1F1B in turns, or one kind first.
    """
    natural = np.arange(len(graph.need))
    forward_tail, backward_tail = tails(graph)
    longest = -np.concatenate([forward_tail, backward_tail])
    yield "tail, 1F1B", Guide(longest, natural, ALTERNATE, 0)
    yield "tail", Guide(longest, natural, UNIFIED, 0)
    depth = depths(graph)
    orders = group_orders(graph)
    for width in (len(natural), graph.num_ranks, 2 * graph.num_ranks):
        for name, order in orders.items():
            position = np.empty_like(order)
            position[order] = natural
            of_cell = position[graph.group].astype(np.float64)
            for by_depth in (0.0, 1.0):
                wave = of_cell // max(1, width) * 1e6
                forward = wave + by_depth * depth * 1e3 + of_cell
                backward = wave + by_depth * (depth.max(initial=0.0) - depth) * 1e3 + of_cell
                label = f"{name} in waves of {width}{', by depth' if by_depth else ''}"
                yield f"{label}, 1F1B", Guide(np.concatenate([forward, backward]), position, ALTERNATE, 0)
                for late, what in ((FAR, "forwards first"), (-FAR, "backwards first")):
                    yield f"{label}, {what}", Guide(np.concatenate([forward, backward + late]), position, UNIFIED, 0)


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


@njit(cache=True)
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


@njit(cache=True)
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


@njit(cache=True)
def depths(graph: TaskGraph) -> NDArray[np.float64]:
    """Number of cells on the longest chain that leads to each cell."""
    depth = np.zeros(graph.rank.shape[0])
    for c in topological(graph):
        for i in range(graph.first[c], graph.first[c + 1]):
            depth[graph.consumer[i]] = max(depth[graph.consumer[i]], depth[c] + 1)
    return depth
