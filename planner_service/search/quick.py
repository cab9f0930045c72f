"""A good schedule of some work in milliseconds: what choices are compared by, and what search starts from."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from planner_service.domain.graph import task_graph
from planner_service.search.decoders import NEVER, decode
from planner_service.search.justify import can_mirror, justify
from planner_service.search.seeds import seed_guides

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dip.work import Work

    from planner_service.domain.graph import Ints, TaskGraph
    from planner_service.search.decoders import Decoded, Guide

JUSTIFIED, ROUNDS = 1, 3
"""How many seeds are improved forwards and backwards, and how often."""

RESERVES = (0.0, 0.2, 0.5, 0.8)
"""Shares of a rank's room that are worth a try as reserve, where memory is limited."""


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


def quick_schedule(work: Work, *, seeds: int, reserves: Sequence[float] = RESERVES) -> tuple[Candidate, int]:
    """Best of a few seeds, with a few reserves where memory is limited.

    Parameters
    ----------
    work
        The stage tasks; every group fits alone with all layers lean.
    seeds
        How many seeds to decode for each reserve.
    reserves
        What to try; without effect where memory is not limited.

    Returns
    -------
    Candidate, int
        The best schedule, and how many were tried.
    """
    best: Candidate | None = None
    tried = 0
    for split in (False, True) if work.job.split_backward else (False,):
        graph = task_graph(work, split=split)
        for reserve in reserves if is_limited(graph) else (0.0,):
            decoded = [
                (decode(graph, guide), guide, name) for name, guide in islice(seed_guides(graph, reserve), seeds)
            ]
            tried += seeds
            for found, guide, name in sorted(decoded, key=lambda made: made[0].makespan_us)[:JUSTIFIED]:
                better = justify(graph, found, guide, rounds=ROUNDS) if can_mirror(graph) else found
                tried += 2 * ROUNDS
                if best is None or better.makespan_us < best.makespan_us:
                    best = Candidate(work=work, graph=graph, guide=guide, decoded=better, engine=f"list: {name}")
    if best is None or best.makespan_us >= NEVER:
        raise RuntimeError("the decoder got stuck although every group fits alone")
    return best, tried


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
