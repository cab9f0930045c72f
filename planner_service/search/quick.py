"""A good schedule of some work in milliseconds: what choices are compared by, and what search starts from."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from dip.fallback import activation_room, fitting_ways

from planner_service.domain.graph import task_graph
from planner_service.search.decoders import NEVER, Decoded, Guide, decode
from planner_service.search.seeds import seed_guides

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dip.memory import Way
    from dip.work import Work

    from planner_service.domain.graph import TaskGraph


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A schedule and all that it was made from.

    Parameters
    ----------
    work
        The stage tasks.
    ways
        For each cell, how its layers run.
    depth
        Number of groups in flight that the ways were made for; 0 where memory is not limited.
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
    ways: Sequence[Way]
    depth: int
    graph: TaskGraph
    guide: Guide
    decoded: Decoded
    engine: str

    @property
    def makespan_us(self) -> int:
        """End of the schedule."""
        return self.decoded.makespan_us


def quick_schedule(work: Work, *, seeds: int, depths: Sequence[int] | None = None) -> tuple[Candidate, int]:
    """Best of a few seeds, for a few amounts of recompute where memory is limited.

    Parameters
    ----------
    work
        The stage tasks; every group fits alone with all layers lean.
    seeds
        How many seeds to decode for each amount.
    depths
        Numbers of groups that memory is divided among; by default all that are worth a try.

    Returns
    -------
    Candidate, int
        The best schedule, and how many were tried.
    """
    best: Candidate | None = None
    tried = 0
    for depth, ways in ways_to_try(work, depths or all_depths(work.job.ranks)):
        graph = task_graph(work, ways)
        for name, guide in islice(seed_guides(graph), seeds):
            found = decode(graph, guide)
            tried += 1
            if best is None or found.makespan_us < best.makespan_us:
                best = Candidate(
                    work=work, ways=ways, depth=depth, graph=graph, guide=guide, decoded=found, engine=f"list: {name}"
                )
    if best is None or best.makespan_us >= NEVER:
        raise RuntimeError("the decoder got stuck although every group fits alone")
    return best, tried


def all_depths(ranks: int) -> tuple[int, ...]:
    """Numbers of groups in flight that are worth a try: around two a rank."""
    return tuple(max(1, ranks * eighths // 8) for eighths in (16, 8, 24, 12, 4, 32, 6, 48))


def ways_to_try(work: Work, depths: Sequence[int]) -> Iterator[tuple[int, list[Way]]]:
    """Ways of all cells for several numbers of groups in flight; all store where nothing is limited."""
    room = activation_room(work.job, work.chunks)
    if work.forward_only or all(space is None for space in room):
        yield 0, [()] * work.num_cells
        return
    seen: list[list[Way]] = []
    for depth in depths:
        ways = fitting_ways(work, room, depth)
        if ways not in seen:
            seen.append(ways)
            yield depth, ways
