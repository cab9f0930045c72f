"""Order of segments by Monte-Carlo tree search, compiled (the paper's step a); and random search, to compare with.

A node of the tree fixes the items of highest priority; its children add one item. A step walks down from the root to
the child of the best score ``best ** alpha + beta * sqrt(ln N / n)`` while all children of a node are known, adds an
unknown child, completes its order at random several times, and hands the best outcome up. An order is worth
``bound / makespan``, between 0 and 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from planner_service.baselines.paper.arrays import NEVER, Desk, Problem
from planner_service.baselines.paper.dual_queue import interleave
from planner_service.compiling import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


class Tuning(NamedTuple):
    """Numbers of the search.

    Parameters
    ----------
    alpha, beta
        Of the score.
    rollouts
        Completions of each new node.
    near
        How many of them follow the best order known: the first as it is, others with one change. All others are at
        random, as all of the paper's are; with some of them near the best as many schedules end 0.5% to 1% lower.
    """

    alpha: float
    beta: float
    rollouts: int
    near: int


TUNED = Tuning(8.0, 0.1, 10, 4)
"""Tuned on VLM-S and VLM-L with documents and T2V-L with web data, 3,000 schedules: alpha 1 to 32, beta 0.001 to 0.1,
and 0, 1 or 4 roll-outs near the best; alpha and beta hardly mattered, the last did."""


class Tree(NamedTuple):
    """Nodes of the search; node 0 is the root.

    Parameters
    ----------
    item
        What each node adds to its parent's order.
    child, sibling
        First child of each node, next child of the same parent; -1: none.
    children, visits
        How many children of each node are known, and how often a step went through it.
    best
        Best worth that was seen below each node.
    size
        [1] Number of nodes.
    order
        [items] Best order found.
    makespan
        [1] Its makespan in microseconds.
    """

    item: Ints
    child: Ints
    sibling: Ints
    children: Ints
    visits: Ints
    best: NDArray[np.float64]
    size: Ints
    order: Ints
    makespan: Ints


def make_tree(order: Ints, makespan_us: int, capacity: int) -> Tree:
    """Tree of a root alone, with a first order and its makespan, and room for ``capacity`` nodes."""

    def ints(size: int, value: int) -> Ints:
        return np.full(size, value, dtype=np.int64)

    return Tree(
        item=ints(capacity, -1),
        child=ints(capacity, -1),
        sibling=ints(capacity, -1),
        children=ints(capacity, 0),
        visits=ints(capacity, 0),
        best=np.zeros(capacity),
        size=ints(1, 1),
        order=order.copy(),
        makespan=ints(1, makespan_us),
    )


@kernel
def tree_search(
    problem: Problem,
    desk: Desk,
    tree: Tree,
    rule: int,
    tuning: Tuning,
    bound: int,
    evaluations: int,
    seed: int,
) -> int:
    """Take steps until at least so many schedules were made, or the bound is reached.

    Parameters
    ----------
    problem, desk, rule
        Of the decoder.
    tree
        Where to go on; changed.
    tuning
        Numbers of the search.
    bound
        Lower bound on the makespan in microseconds.
    evaluations
        Schedules to make; the last step is cut short.
    seed
        Of the random choices.

    Returns
    -------
    int
        Schedules made.
    """
    np.random.seed(seed)
    items = problem.item_first.shape[0] - 1
    order = np.empty(items, dtype=np.int64)
    path = np.empty(items + 1, dtype=np.int64)
    made = 0
    rank_of = np.empty(items, dtype=np.int64)
    while made < evaluations and tree.makespan[0] > bound:
        depth = _descend(tree, tuning, order, path)
        found = 0.0
        for k in range(tuning.rollouts if depth < items else 1):
            if made == evaluations:
                break
            if k < tuning.near:
                for i in range(items):
                    rank_of[tree.order[i]] = i
                tail = order[depth:]
                ranks = rank_of[tail]
                tail[:] = tail[np.argsort(ranks)]
                if k > 0:
                    _disturb(order, depth)
            else:
                _shuffle(order, depth)
            made += 1
            makespan = interleave(problem, desk, order, rule)
            if makespan < NEVER:
                found = max(found, bound / makespan)
            if makespan < tree.makespan[0]:
                tree.makespan[0] = makespan
                tree.order[:] = order
        for i in range(path.shape[0]):
            node = path[i]
            if node < 0:
                break
            tree.visits[node] += 1
            tree.best[node] = max(tree.best[node], found)
    return made


@kernel
def _descend(tree: Tree, tuning: Tuning, order: Ints, path: Ints) -> int:
    """Walk to a node that has unknown children and add one; returns the number of items that are fixed then.

    ``order`` becomes any completion of the node's items, ``path`` the nodes from the root on, ended by -1.
    """
    items = order.shape[0]
    for i in range(items):
        order[i] = i
    path[:] = -1
    node, depth = 0, 0
    path[0] = 0
    while depth < items:
        if tree.children[node] < items - depth:
            if tree.size[0] == tree.item.shape[0]:
                return depth
            new = tree.size[0]
            tree.size[0] += 1
            tree.item[new] = _unknown(tree, node, order, depth)
            tree.sibling[new] = tree.child[node]
            tree.child[node] = new
            tree.children[node] += 1
            chosen = new
        else:
            chosen = _best_child(tree, tuning, node)
        for i in range(depth, items):
            if order[i] == tree.item[chosen]:
                order[i], order[depth] = order[depth], order[i]
                break
        depth += 1
        path[depth] = chosen
        node = chosen
        if tree.visits[node] == 0:
            return depth
    return depth


@kernel
def _unknown(tree: Tree, node: int, order: Ints, depth: int) -> int:
    """One of the items that are neither fixed nor children of a node, at random."""
    skip = np.random.randint(0, order.shape[0] - depth - tree.children[node])
    for i in range(depth, order.shape[0]):
        child = tree.child[node]
        while child >= 0 and tree.item[child] != order[i]:
            child = tree.sibling[child]
        if child < 0:
            if skip == 0:
                return int(order[i])
            skip -= 1
    return -1


@kernel
def _best_child(tree: Tree, tuning: Tuning, node: int) -> int:
    """Child of the best score."""
    chosen, top = -1, -1.0
    child = tree.child[node]
    while child >= 0:
        score = tree.best[child] ** tuning.alpha
        score += tuning.beta * np.sqrt(np.log(tree.visits[node]) / tree.visits[child])
        if score > top:
            chosen, top = child, score
        child = tree.sibling[child]
    return chosen


@kernel
def random_search(problem: Problem, desk: Desk, tree: Tree, rule: int, bound: int, evaluations: int, seed: int) -> int:
    """Decode random orders; of the tree only the best order is used. Returns the schedules made."""
    np.random.seed(seed)
    order = np.arange(problem.item_first.shape[0] - 1)
    made = 0
    while made < evaluations and tree.makespan[0] > bound:
        _shuffle(order, 0)
        made += 1
        makespan = interleave(problem, desk, order, rule)
        if makespan < tree.makespan[0]:
            tree.makespan[0] = makespan
            tree.order[:] = order
    return made


@kernel
def _disturb(order: Ints, first: int) -> None:
    """Exchange two of the items from ``first`` on, or move one to another place."""
    i = np.random.randint(first, order.shape[0])
    j = np.random.randint(first, order.shape[0])
    moved = order[i]
    if np.random.random() < 0.5:
        order[i] = order[j]
    elif i < j:
        for k in range(i, j):
            order[k] = order[k + 1]
    else:
        for k in range(i, j, -1):
            order[k] = order[k - 1]
    order[j] = moved


@kernel
def _shuffle(order: Ints, first: int) -> None:
    """Put the items from ``first`` on into random order."""
    for i in range(order.shape[0] - 1, first, -1):
        j = first + np.random.randint(0, i - first + 1)
        order[i], order[j] = order[j], order[i]
