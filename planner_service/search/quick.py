"""A good schedule of some work in milliseconds: what choices are compared by, and what search starts from."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice, product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from planner_service.domain.graph import task_graph
from planner_service.search.decoders import NEVER, UNIFIED, decode
from planner_service.search.justify import can_mirror, justify
from planner_service.search.savings import NOTHING, SAVINGS, cheap_cells, that_differ, thrifty
from planner_service.search.seeds import seed_guides

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dip.work import Work

    from planner_service.domain.graph import Ints, TaskGraph
    from planner_service.search.decoders import Decoded, Guide
    from planner_service.search.savings import Saving

ROUNDS = 3
"""How often the best seed is improved forwards and backwards."""

HOARDS = (0.07, 1.0)
"""Shares of a rank's room that cells whose weight half waits may hold, where memory is limited."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A schedule as a decoder made it, with all that it was made from.

    Parameters
    ----------
    work
        The stage tasks.
    graph
        The same as arrays.
    guide
        What the decoder was fed.
    decoded
        The schedule.
    engine
        What found it.
    """

    work: Work
    graph: TaskGraph
    guide: Guide
    decoded: Decoded
    engine: str

    @property
    def makespan_us(self) -> int:
        """End of the schedule."""
        return self.decoded.makespan_us


def quick_schedule(work: Work, *, seeds: int, savings: Sequence[Saving] = SAVINGS) -> tuple[Candidate, int]:
    """Best of a few seeds, more and less thrifty where memory is limited.

    Where the job allows split backwards, the best order of whole ones, improved forwards and backwards, is a seed too.

    Parameters
    ----------
    work
        The stage tasks; every group fits alone with all layers lean.
    seeds
        How many seeds to decode for each saving.
    savings
        What to try; without effect where memory is not limited.

    Returns
    -------
    Candidate, int
        The best schedule, and how many were tried.
    """
    whole = task_graph(work)
    best, tried = _best_of_seeds(whole, seeds, savings, hoards=(1.0,))
    improved, more = _improved(whole, best)
    tried += more
    if not work.job.split_backward:
        return _candidate(work, whole, min(best, improved, key=_makespan)), tried
    graph = task_graph(work, split=True)
    hoards = HOARDS if is_limited(graph) else (1.0,)
    split, more = _best_of_seeds(graph, seeds, savings, hoards)
    tried += more
    priority = improved.decoded.start[: 2 * graph.num_cells].astype(np.float64)
    for hoard in (0.0, *hoards):
        guide = improved.guide._replace(priority=priority, rule=UNIFIED, hoard=hoard)
        tried += 1
        split = min(split, Seed(decode(graph, guide), guide, f"{improved.name}, split"), key=_makespan)
    return _candidate(work, graph, split), tried


class Seed(NamedTuple):
    """A schedule, what it was made from, and the name of that."""

    decoded: Decoded
    guide: Guide
    name: str


def _makespan(seed: Seed) -> int:
    return seed.decoded.makespan_us


def _best_of_seeds(
    graph: TaskGraph, seeds: int, savings: Sequence[Saving], hoards: Sequence[float]
) -> tuple[Seed, int]:
    """Best of all combinations of the first seeds, and how many there are."""
    cheap = cheap_cells(graph)
    pairs = product(that_differ(savings, cheap) if is_limited(graph) else (NOTHING,), hoards)
    named = list(islice(seed_guides(graph), seeds))
    guides = [
        (name, thrifty(guide, saving, cheap)._replace(hoard=hoard)) for saving, hoard in pairs for name, guide in named
    ]
    tried = [Seed(decode(graph, guide), guide, name) for name, guide in guides]
    best = min(tried, key=_makespan)
    if not is_limited(graph):
        return best, len(tried)
    careless = [thrifty(best.guide, saving, cheap)._replace(careful=False) for saving in that_differ(savings, cheap)]
    tried += [Seed(decode(graph, guide), guide, f"{best.name}, careless") for guide in careless]
    return min(tried, key=_makespan), len(tried)


def _improved(graph: TaskGraph, seed: Seed) -> tuple[Seed, int]:
    """The seed improved forwards and backwards, where that can be done, and how many schedules that took."""
    if not can_mirror(graph):
        return seed, 0
    return seed._replace(decoded=justify(graph, seed.decoded, seed.guide, rounds=ROUNDS)), 2 * ROUNDS


def _candidate(work: Work, graph: TaskGraph, seed: Seed) -> Candidate:
    if seed.decoded.makespan_us >= NEVER:
        raise RuntimeError("the decoder got stuck although every group fits alone")
    return Candidate(work=work, graph=graph, guide=seed.guide, decoded=seed.decoded, engine=f"list: {seed.name}")


def is_limited(graph: TaskGraph) -> bool:
    """Whether some rank has less room than all of its activations would take."""
    limits = graph.room >= 0
    wanted = sum_by_rank(graph)
    return bool((wanted[limits] > graph.room[limits]).any())


def sum_by_rank(graph: TaskGraph) -> Ints:
    """Bytes that each rank would hold if all cells stored at once."""
    wanted = np.zeros(graph.num_ranks, dtype=np.int64)
    np.add.at(wanted, graph.rank, np.maximum(graph.kept, graph.between))
    return wanted
