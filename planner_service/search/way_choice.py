"""Order kept, ways chosen anew: CP-SAT on each rank's memory, priced by where time is critical."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from dip.fallback import activation_room

from planner_service.search.criticality import slack_of
from planner_service.search.way_model import NO_LIMIT, Option, Span, WayModel
from planner_service.search.ways import CandidateWays

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from planner_service.search.schedule import Schedule

SCALE = 2e-3
"""Slack, as a share of the makespan, at which a microsecond is worth 1/e of a critical one."""

TRIES = ((1.0, True), (0.2, True), (0.2, False), (0.05, False))
"""For each round: what a microsecond of a rank's time is worth where it is not critical at all (slack that one cell
takes is gone for others); and whether what a rank chooses is taken back at once where the schedule does not get better
by it, or only after all others have chosen, too."""

UNIT = 64
"""Prices are whole multiples of 1 / UNIT microseconds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Prices:
    """What a microsecond more of each task costs, by how critical the task is; [3n].

    Parameters
    ----------
    data, rank
        For what waits for its output, and for what its rank runs next.
    """

    data: NDArray[np.float64]
    rank: NDArray[np.float64]

    @classmethod
    def of(cls, schedule: Schedule, least: float) -> Prices:
        """Prices that fall with slack, to ``least`` on a rank."""
        slack, scale = slack_of(schedule.graph, schedule.start), max(1.0, SCALE * schedule.makespan_us)
        return cls(data=np.exp(-slack.data / scale), rank=least + np.exp(-slack.rank / scale))


def improve_memory(schedule: Schedule, *, seconds: float, effort: float, seed: int) -> Schedule:
    """Choose anew how all cells run, each rank's order of tasks kept: by what time is worth where.

    A cell may also keep its backward whole rather than split, or split it where it stands. Each round prices a
    microsecond of each task by how critical it is, CP-SAT finds the cheapest choice that fits on each rank, and the
    schedule that follows shows what is critical then.

    Parameters
    ----------
    schedule
        Where to start; within the memory of all ranks.
    seconds, effort
        Most to spend: of time, and of the solver's own unit, which no clock decides.
    seed
        Of the solver.

    Returns
    -------
    Schedule
        The shortest one found, of equals the one whose tasks take least time; never longer than the given one.
    """
    deadline = time.monotonic() + seconds
    candidates = CandidateWays(schedule.work)
    room = activation_room(schedule.work.job, schedule.work.chunks)
    loads = schedule.graph.duration.reshape(3, -1).sum(axis=0)
    by_load = np.argsort(-np.bincount(schedule.graph.rank, weights=loads, minlength=len(room)), kind="stable")
    best = current = schedule
    for least, step_by_step in TRIES:
        for rank in by_load.tolist():
            if time.monotonic() >= deadline:
                return best
            spans, prices = _spans(current, rank), Prices.of(current, least)
            options = {cell: list(_options(current, candidates, prices, cell)) for cell in spans}
            space = room[rank]
            model = WayModel(spans, options, NO_LIMIT if space is None else space)
            each = effort / (len(TRIES) * len(room))
            picked = model.solve(seconds=deadline - time.monotonic(), effort=each, seed=seed)
            current = _with(current, picked)
            if (current.makespan_us, _total(current)) < (best.makespan_us, _total(best)):
                best = current
            elif step_by_step:
                current = best
    return best


def _total(schedule: Schedule) -> int:
    return int(schedule.graph.duration.sum())


def _spans(schedule: Schedule, rank: int) -> dict[int, Span]:
    """Places of the cells of a rank that keep something."""
    n, start = schedule.work.num_cells, schedule.start
    tasks = np.flatnonzero((start >= 0) & np.tile(schedule.graph.rank == rank, 3))
    place = np.zeros(3 * n, dtype=np.int64)
    place[tasks[np.argsort(start[tasks], kind="stable")]] = np.arange(len(tasks))
    spans = {}
    for cell in (tasks[(tasks >= n) & (tasks < 2 * n)] - n).tolist():
        backward = int(place[n + cell])
        weight = int(place[2 * n + cell]) if start[2 * n + cell] >= 0 else backward
        spans[cell] = Span(forward=int(place[cell]), backward=backward, weight=weight)
    return spans


def _options(schedule: Schedule, candidates: CandidateWays, prices: Prices, cell: int) -> Iterator[Option]:
    """What a cell may do: the way of now first; its backward as it is, whole, or split where it stands."""
    work, n = schedule.work, schedule.work.num_cells
    halves = bool(schedule.start[2 * n + cell] >= 0)
    may_split = work.job.split_backward and not work.module_of(cell).frozen
    for way in dict.fromkeys((schedule.ways[cell], *candidates.of(cell))):
        cost = work.cost(cell, way)
        forward = cost.forward_us * (prices.data[cell] + prices.rank[cell])
        for split in (halves, not halves) if may_split else (halves,):
            if split:
                first, both = cost.backward_input_us, cost.backward_input_us + cost.backward_weight_us
            else:
                first = both = cost.backward_us
            price = forward + first * prices.data[n + cell] + both * prices.rank[n + cell]
            yield Option(
                way=way,
                halves=split,
                kept_bytes=cost.kept_bytes,
                between_bytes=cost.split_kept_bytes,
                price=round(UNIT * price),
            )


def _with(schedule: Schedule, picked: Mapping[int, Option]) -> Schedule:
    """Return the schedule in which cells run as picked, in the same order."""
    n = schedule.work.num_cells
    ways = list(schedule.ways)
    order = schedule.start * 2  # a half that is new comes right behind the other one
    for cell, option in picked.items():
        ways[cell] = option.way
        if not option.halves:
            order[2 * n + cell] = -1
        elif order[2 * n + cell] < 0:
            order[2 * n + cell] = order[n + cell] + 1
    return replace(schedule, start=order).rewayed(ways, "CP-SAT memory")
