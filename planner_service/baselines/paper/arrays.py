"""The arrays that dual-queue interleaving works on: the problem that it reads, and the desk that it works at."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

NEVER = 1 << 62
"""A time that does not come: the makespan of an order that memory got stuck."""

WORD_BITS = 3
WORD = 1 << WORD_BITS
"""Places of a queue that are looked at together."""


class Problem(NamedTuple):
    """Stage tasks with whole backwards: the forward of cell ``c`` is task ``c``, its backward ``n + c``.

    Parameters
    ----------
    queue
        [2n] Queue of each task: forwards of rank r wait in queue 2r, its backwards in 2r + 1.
    queue_first
        [2 ranks + 1] Where the places of each queue begin when all are in one row; multiples of ``WORD``.
    inputs
        [2n] How many tasks each task waits for; 0 also where there is no task.
    next_first, next_task, hop
        What waits for each task: for task ``t`` those at ``next_first[t] : next_first[t + 1]``, each ``hop``
        microseconds after its end.
    duration
        [2n] Microseconds of each task; 0 where there is none.
    kept
        [n] Bytes that a cell holds from the start of its forward to the end of its backward.
    group
        [n] Group of each cell: sub-microbatches that depend on each other.
    need
        [groups, ranks] Bytes of a group's cells on each rank.
    room
        [ranks] Bytes that activations may take; NEVER where there is no limit.
    item_first, item_task
        Tasks of each item, in their order among each other: ``item_first[i] : item_first[i + 1]``. An item is what
        shares a priority: all segments and sub-microbatches of one module in one microbatch.
    """

    queue: Ints
    queue_first: Ints
    inputs: Ints
    next_first: Ints
    next_task: Ints
    hop: Ints
    duration: Ints
    kept: Ints
    group: Ints
    need: Ints
    room: Ints
    item_first: Ints
    item_task: Ints

    @property
    def num_items(self) -> int:
        """Number of items: an order is a permutation of them."""
        return len(self.item_first) - 1

    @property
    def num_ranks(self) -> int:
        """Number of ranks."""
        return len(self.room)


class Desk(NamedTuple):
    """Working memory of the decoder, made once for many schedules.

    Parameters
    ----------
    start
        [2n] Start of each task in the last schedule; -1 where there is none.
    ready, missing
        [2n] When the last input of each task arrived, and how many have not.
    place, task_at, waiting
        Place of each task in its queue's row, by priority; the reverse; whether it waits there.
    waiting_words
        The same as ``waiting``, ``WORD`` places at a time.
    head
        [queues] First place of each row at which a task may wait.
    coming, num_coming
        [ranks, most], [ranks] Tasks of each rank whose inputs arrive later than the rank gets free.
    held, free, soonest
        [ranks] Bytes held, when the rank gets free, when it can start something next.
    turn, group_held, group_need
        For the rule ADMIT: place of each group by priority; by place and rank, what it holds, and what it needs yet.
    oldest
        [ranks] First place of a group that needs a rank's memory yet.
    last_forward
        [ranks] Whether the last task of each rank was a forward.
    end
        [queues] Where the row of each queue ends so far, while places are given.
    """

    start: Ints
    ready: Ints
    missing: Ints
    place: Ints
    task_at: Ints
    waiting: Bools
    waiting_words: NDArray[np.uint64]
    head: Ints
    coming: Ints
    num_coming: Ints
    held: Ints
    free: Ints
    soonest: Ints
    turn: Ints
    group_held: Ints
    group_need: Ints
    oldest: Ints
    last_forward: Bools
    end: Ints


def make_desk(problem: Problem) -> Desk:
    """Working memory for schedules of a problem."""
    tasks, ranks, groups = len(problem.duration), problem.num_ranks, len(problem.need)
    places = int(problem.queue_first[-1])
    waiting = np.zeros(places, dtype=np.bool_)
    most = int(np.bincount(problem.queue // 2, minlength=ranks).max(initial=0))

    def ints(*shape: int) -> Ints:
        return np.zeros(shape, dtype=np.int64)

    return Desk(
        start=ints(tasks),
        ready=ints(tasks),
        missing=ints(tasks),
        place=ints(tasks),
        task_at=ints(places),
        waiting=waiting,
        waiting_words=waiting.view(np.uint64),
        head=ints(2 * ranks),
        coming=ints(ranks, most),
        num_coming=ints(ranks),
        held=ints(ranks),
        free=ints(ranks),
        soonest=ints(ranks),
        turn=ints(groups),
        group_held=ints(groups, ranks),
        group_need=ints(groups, ranks),
        oldest=ints(ranks),
        last_forward=np.zeros(ranks, dtype=np.bool_),
        end=ints(2 * ranks),
    )
