"""List scheduling that cannot deadlock on memory, in plain Python: the order of the fixed fallback.

Work is admitted by *groups*: sub-microbatches that depend on each other, normally a whole microbatch. Groups have a
fixed order. The rule that keeps the order free of deadlock: on every rank, what a group needs in all plus what all
later groups hold there never exceeds the limit. Then the oldest unfinished group can always run to its end.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from dip.lowering import Phase, task_us

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dip.lowering import Task
    from dip.memory import Way
    from dip.work import Work


def group_needs(work: Work, ways: Sequence[Way]) -> list[list[int]]:
    """Bytes that each group's activations take on each rank when all are held at once: [group][rank]."""
    groups = work.groups
    needs = [[0] * work.job.ranks for _ in range(max(groups, default=-1) + 1)]
    for cell, part in enumerate(work.cell_part):
        if work.has_backward(cell):
            needs[groups[part]][work.cell_chunk[cell].rank] += work.cost(cell, ways[cell]).kept_bytes
    return needs


class _Memory:
    """Admission by the rule of this module; bytes that activations may take on each rank, None: no limit."""

    def __init__(self, room: Sequence[int | None], needs: list[list[int]]) -> None:
        self._room = room
        self._needs = needs
        self._held = [[0] * len(room) for _ in needs]
        self._oldest = 0

    def admits(self, group: int, rank: int, num_bytes: int) -> bool:
        room = self._room[rank]
        if room is None or not num_bytes:
            return True
        later = num_bytes + sum(held[rank] for held in self._held[group:])
        for earlier in range(group - 1, self._oldest - 1, -1):
            if self._needs[earlier][rank] + later > room:
                return False
            later += self._held[earlier][rank]
        return True

    def hold(self, group: int, rank: int, num_bytes: int) -> None:
        self._held[group][rank] += num_bytes

    def free(self, group: int, rank: int, num_bytes: int) -> None:
        self._held[group][rank] -= num_bytes
        self._needs[group][rank] -= num_bytes
        while self._oldest < len(self._needs) and not any(self._needs[self._oldest]):
            self._oldest += 1


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


class _Lister:
    """State of one run of :func:`list_schedule`."""

    def __init__(self, work: Work, ways: Sequence[Way]) -> None:
        self.work, self.ways = work, ways
        self.groups = work.groups
        static, job = work.static_bytes, work.job
        room = [job.memory_bytes[r] - static[r] if job.memory_bytes[r] else None for r in range(job.ranks)]
        self.memory = _Memory(room, group_needs(work, ways))
        self.ready: list[dict[Task, int]] = [{} for _ in range(job.ranks)]
        self.free = [0] * job.ranks
        self.orders: list[list[Task]] = [[] for _ in range(job.ranks)]
        self.arrived: dict[Task, int] = defaultdict(int)
        self.forward_succs: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self.backward_succs: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self.missing: dict[Task, int] = defaultdict(int)
        for edge in work.edges:
            self.forward_succs[edge.producer].append((edge.consumer, edge.hop_us))
            self.missing[Phase.FORWARD, edge.consumer] += 1
            if work.has_backward(edge.producer):
                self.backward_succs[edge.consumer].append((edge.producer, edge.hop_us))
                self.missing[Phase.BACKWARD, edge.producer] += 1
        for cell in range(work.num_cells):
            if not self.missing[Phase.FORWARD, cell]:
                self.ready[work.cell_chunk[cell].rank][Phase.FORWARD, cell] = 0
            if work.has_backward(cell):
                self.missing[Phase.BACKWARD, cell] += 1

    def run(self) -> list[list[Task]]:
        best: dict[int, tuple[tuple[int, ...], Task] | None] = {r: self._choice(r) for r in range(len(self.ready))}
        while any(self.ready):
            candidates = [(choice[0], r, choice[1]) for r, choice in best.items() if choice]
            _, rank, task = min(candidates)
            for touched in self._start(rank, task) | {rank}:
                best[touched] = self._choice(touched)
        return self.orders

    def _choice(self, rank: int) -> tuple[tuple[int, ...], Task] | None:
        """The rank's next task and its key: when it can start, then the tie-breaks."""
        chosen: tuple[tuple[int, ...], Task] | None = None
        for task, ready in self.ready[rank].items():
            phase, cell = task
            group = self.groups[self.work.cell_part[cell]]
            forward = phase == Phase.FORWARD
            key = max(ready, self.free[rank]), int(forward), group, -cell
            if chosen and key >= chosen[0]:
                continue
            if forward and not self.memory.admits(group, rank, self._kept(cell)):
                continue
            chosen = key, task
        return chosen

    def _kept(self, cell: int) -> int:
        return self.work.cost(cell, self.ways[cell]).kept_bytes if self.work.has_backward(cell) else 0

    def _start(self, rank: int, task: Task) -> set[int]:
        """Run a task; returns the ranks on which something became ready."""
        phase, cell = task
        group = self.groups[self.work.cell_part[cell]]
        self.orders[rank].append(task)
        end = max(self.ready[rank].pop(task), self.free[rank]) + task_us(self.work, task, self.ways[cell])
        self.free[rank] = end
        if phase == Phase.FORWARD:
            self.memory.hold(group, rank, self._kept(cell))
            later = [((Phase.FORWARD, c), hop) for c, hop in self.forward_succs[cell]]
            if self.work.has_backward(cell):
                later.append(((Phase.BACKWARD, cell), 0))
        else:
            self.memory.free(group, rank, self._kept(cell))
            later = [((Phase.BACKWARD, c), hop) for c, hop in self.backward_succs[cell]]
        arrived = (self._arrive(task, end + hop) for task, hop in later)
        return {touched for touched in arrived if touched is not None}

    def _arrive(self, task: Task, when: int) -> int | None:
        """One more input of a task is there; its rank, once all are."""
        self.arrived[task] = max(self.arrived[task], when)
        self.missing[task] -= 1
        if self.missing[task]:
            return None
        rank = self.work.cell_chunk[task[1]].rank
        self.ready[rank][task] = self.arrived[task]
        return rank
