"""List scheduling that cannot deadlock on memory, in plain Python: the order of the fixed fallback.

Work is admitted by *groups*: sub-microbatches that depend on each other, normally a whole microbatch. Groups have a
fixed order, and :mod:`dip.admission` says which of their forwards may start.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from dip.admission import Admission
from dip.lowering import Phase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dip.lowering import Task
    from dip.memory import Way
    from dip.work import Work

_Start = tuple[int, int, int, int]
"""A task that may go next, the first of all the smallest: when, 1 for a forward, its group, its cell with a minus."""


def group_needs(work: Work, ways: Sequence[Way]) -> list[list[int]]:
    """Bytes that each group's activations take on each rank when all are held at once: [group][rank]."""
    groups = work.groups
    needs = [[0] * work.job.ranks for _ in range(max(groups, default=-1) + 1)]
    cells = zip(work.cell_part, work.cell_rank, _kept_bytes(work, ways), strict=True)
    for part, rank, kept in cells:
        needs[groups[part]][rank] += kept
    return needs


def _kept_bytes(work: Work, ways: Sequence[Way]) -> list[int]:
    """Bytes that each cell keeps for its backward."""
    return [cost.kept_bytes if trains else 0 for cost, trains in zip(work.costs(ways), work.cell_trains, strict=True)]


def list_schedule(work: Work, ways: Sequence[Way]) -> list[list[Task]]:
    """Order of each rank by non-delay list scheduling with whole backwards: 1F1B-like, oldest group first.

    The task that can start first goes next; of several, a backward before a forward, then the older group, then the
    later chunk.

    Parameters
    ----------
    work
        The stage tasks.
    ways
        For each cell, how its layers run. Every group must fit alone on every rank.

    Returns
    -------
    list of list of Task
        For each rank its tasks in order.
    """
    return _Lister(work, ways).run()


class _Rank:
    """One rank: until when it is busy, what it may run next, and what it ran.

    A task is *waiting* as long as the rank is free before the task's inputs are there.

    Parameters
    ----------
    admission
        What memory lets start.
    kept
        Bytes that each cell keeps.
    """

    def __init__(self, admission: Admission, kept: Sequence[int]) -> None:
        self.admission, self.kept = admission, kept
        self.free = 0
        self.waiting: list[_Start] = []
        self.backwards: list[tuple[int, int]] = []
        self.choice: _Start | None = None
        self.order: list[Task] = []

    def settle(self, until: int) -> None:
        """End the wait of all tasks whose inputs are there by then."""
        while self.waiting and self.waiting[0][0] <= until:
            _, is_forward, group, place = heappop(self.waiting)
            if is_forward:
                self.admission.offer(group, -place, self.kept[-place])
            else:
                heappush(self.backwards, (group, place))

    def choose(self) -> None:
        """Choose what starts first of all that may start."""
        self.settle(self.free)
        if self.backwards:
            self.choice = self.free, 0, *self.backwards[0]
            return
        found = self.admission.first()
        if found:
            self.choice = self.free, 1, found[0], -found[1]
        elif self.waiting and self.may_start(self.waiting[0]):
            self.choice = self.waiting[0]
        else:
            self.choice = next((start for start in sorted(self.waiting) if self.may_start(start)), None)

    def may_start(self, start: _Start) -> bool:
        """Whether memory lets a task start."""
        _, is_forward, group, place = start
        return not is_forward or self.admission.admits(group, self.kept[-place])


class _Lister:
    """State of one run of :func:`list_schedule`; tasks are numbered as rows of :attr:`Work.successors`."""

    def __init__(self, work: Work, ways: Sequence[Way]) -> None:
        self.rank_of, self.successors, self.num_cells = work.cell_rank, work.successors, work.num_cells
        self.group = [work.groups[part] for part in work.cell_part]
        self.kept = _kept_bytes(work, ways)
        costs = work.costs(ways)
        self.duration = [cost.forward_us for cost in costs] + [cost.backward_us for cost in costs]
        self.ready = [0] * len(self.duration)
        self.missing = list(work.num_inputs)
        needs = list(zip(*group_needs(work, ways), strict=True)) or [()] * work.job.ranks
        busy = set(self.rank_of)  # there may be hundreds of others, of which nothing need be known
        self.ranks = [
            _Rank(Admission(most - held if most else None, needs[rank] if rank in busy else ()), self.kept)
            for rank, (most, held) in enumerate(zip(work.job.memory_bytes, work.static_bytes, strict=True))
        ]
        self.starts: list[_Start] = []

    def run(self) -> list[list[Task]]:
        for cell, at in enumerate(self.rank_of):
            if not self.missing[cell]:
                self.ranks[at].waiting.append((0, 1, self.group[cell], -cell))
        for rank in self.ranks:
            heapify(rank.waiting)
            rank.choose()
            if rank.choice:
                heappush(self.starts, rank.choice)
        while self.starts:
            start = heappop(self.starts)
            rank = self.ranks[self.rank_of[-start[3]]]
            if start is rank.choice:  # else it has chosen anew since
                self._run(rank, start)
        return [rank.order for rank in self.ranks]

    def _run(self, rank: _Rank, start: _Start) -> None:
        """Run a task and let its rank choose the next one."""
        when, is_forward, group, place = start
        task = cell = -place
        rank.settle(when)
        if is_forward:
            rank.admission.start(group, cell, self.kept[cell])
            rank.order.append((Phase.FORWARD, cell))
        else:
            heappop(rank.backwards)
            rank.admission.free(group, self.kept[cell])
            rank.order.append((Phase.BACKWARD, cell))
            task += self.num_cells
        rank.free = when + self.duration[task]
        for later, hop in self.successors[task]:
            self.ready[later] = max(self.ready[later], rank.free + hop)
            self.missing[later] -= 1
            if not self.missing[later]:
                self._wait(later, running=rank)
        rank.choose()
        if rank.choice:
            heappush(self.starts, rank.choice)

    def _wait(self, task: int, running: _Rank) -> None:
        """All that a task needs is on its way: its rank may choose it, if it does not run something just now."""
        is_backward, cell = divmod(task, self.num_cells)
        rank, when = self.ranks[self.rank_of[cell]], self.ready[task]
        place = 1 - is_backward, self.group[cell], -cell
        heappush(rank.waiting, (when, *place))
        start = max(when, rank.free), *place
        if rank is running or (rank.choice and rank.choice < start) or not rank.may_start(start):
            return
        rank.choice = start
        heappush(self.starts, start)
