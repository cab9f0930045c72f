"""From stage tasks to what the interleaving reads: items, queues, and one choice of memory ways."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from planner_service.baselines.paper.arrays import NEVER, WORD, Problem
from planner_service.compiling import kernel
from planner_service.domain.graph import task_graph

if TYPE_CHECKING:
    from dip.work import Work
    from numpy.typing import NDArray

    from planner_service.baselines.paper.candidates import Candidates

    Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Base:
    """What of a problem does not depend on the memory ways.

    Parameters
    ----------
    work
        The stage tasks.
    candidates
        Ways to run each kind of cell.
    problem
        The problem with every cell stored.
    """

    work: Work
    candidates: Candidates
    problem: Problem

    @classmethod
    def of(cls, work: Work, candidates: Candidates) -> Base:
        """Make the arrays of some stage tasks."""
        n, ranks = work.num_cells, work.job.ranks
        graph = task_graph(work, split=False)
        items, tasks = _items(work, graph.has_backward)
        queue = np.concatenate([2 * graph.rank, 2 * graph.rank + 1])
        producer = np.repeat(np.arange(n), np.diff(graph.first))
        consumer = np.repeat(np.arange(n), np.diff(graph.back_first))
        trains = np.flatnonzero(graph.has_backward)
        source = np.concatenate([trains, producer, n + consumer])
        target = np.concatenate([n + trains, graph.consumer, n + graph.producer])
        hops = np.concatenate([np.zeros_like(trains), graph.hop, graph.back_hop])
        by_source = np.argsort(source, kind="stable")
        problem = Problem(
            queue=queue,
            queue_first=_starts(-(-np.bincount(queue[tasks], minlength=2 * ranks) // WORD) * WORD),
            inputs=np.bincount(target, minlength=2 * n).astype(np.int64),
            next_first=_starts(np.bincount(source, minlength=2 * n)),
            next_task=target[by_source],
            hop=hops[by_source],
            duration=np.zeros(2 * n, dtype=np.int64),
            kept=np.zeros(n, dtype=np.int64),
            group=graph.group,
            need=np.zeros((int(graph.group.max(initial=-1)) + 1, ranks), dtype=np.int64),
            room=np.where(graph.room < 0, NEVER, graph.room),
            item_first=items,
            item_task=tasks,
        )
        made = cls(work=work, candidates=candidates, problem=problem)
        return cls(work=work, candidates=candidates, problem=made.with_ways(np.zeros(n, dtype=np.int64)))

    def with_ways(self, chosen: Ints) -> Problem:
        """Problem in which every cell runs in one of its candidates ([n], by index)."""
        kind = self.candidates.kind
        forward, backward, kept = (
            table[kind, chosen]
            for table in (self.candidates.forward_us, self.candidates.backward_us, self.candidates.kept_bytes)
        )
        need = np.zeros_like(self.problem.need)
        np.add.at(need, (self.problem.group, self.problem.queue[: len(kept)] // 2), kept)
        return self.problem._replace(duration=np.concatenate([forward, backward]), kept=kept, need=need)


def _items(work: Work, has_backward: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Row starts and tasks of the items: each module of each microbatch, in the order in which they come.

    Within an item forwards go by sub-microbatch, then by chunk; backwards from the last chunk back, then by
    sub-microbatch: of the ways to order them this one was best on the set-ups.
    """
    n = work.num_cells
    of_item: dict[tuple[int, int], list[int]] = {}
    for cell, part in enumerate(work.cell_part):
        of_item.setdefault((work.parts[part].microbatch, work.parts[part].module), []).append(cell)
    first, tasks = [0], list[int]()
    for key in sorted(of_item):
        cells = of_item[key]
        tasks += cells
        backs = [cell for cell in cells if has_backward[cell]]
        tasks += [n + cell for cell in sorted(backs, key=lambda c: (-work.cell_chunk[c].index, work.cell_part[c]))]
        first.append(len(tasks))
    return np.array(first, dtype=np.int64), np.array(tasks, dtype=np.int64)


def _starts(counts: Ints) -> Ints:
    """Where each row begins when rows of these lengths follow each other, and where the last one ends."""
    starts = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=starts[1:])
    return starts


@kernel
def retime(problem: Problem, tasks: Ints) -> tuple[Ints, int]:
    """Earliest starts [2n], and the makespan, when ranks keep the order of ``tasks``, each after what it waits for."""
    start = np.full(problem.duration.shape[0], -1, dtype=np.int64)
    ready = np.zeros(problem.duration.shape[0], dtype=np.int64)
    free = np.zeros(problem.room.shape[0], dtype=np.int64)
    makespan = 0
    for task in tasks:
        rank = problem.queue[task] >> 1
        start[task] = max(free[rank], ready[task])
        end = start[task] + problem.duration[task]
        free[rank] = end
        makespan = max(makespan, end)
        for i in range(problem.next_first[task], problem.next_first[task + 1]):
            later = problem.next_task[i]
            ready[later] = max(ready[later], end + problem.hop[i])
    return start, makespan
