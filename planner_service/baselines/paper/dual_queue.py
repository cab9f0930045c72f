"""Dual-queue interleaving, compiled: from an order of segments to a schedule (the paper's step b).

Every rank keeps its forwards and its backwards that can run in two queues by priority. The rank that can start
something first goes next. With both kinds ready it alternates, as 1F1B does; otherwise it takes what is ready. A rank
whose memory does not hold the next forward closes its forward queue until a backward has freed enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from planner_service.compiling import bare_kernel, inlined

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Bools = NDArray[np.bool_]

NEVER = 1 << 62
"""A time that does not come: the makespan of an order that memory got stuck."""

CLOSE, ADMIT = 0, 1
"""Memory rules. CLOSE is the paper's: no forward while the next one would not fit; it can get stuck where memory is
tight. ADMIT, which cannot, starts a forward only where every earlier microbatch keeps the room that it still needs."""


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


@bare_kernel
def interleave(problem: Problem, desk: Desk, order: Ints, rule: int) -> int:
    """Schedule every task.

    Parameters
    ----------
    problem
        The tasks.
    desk
        Working memory; afterwards ``desk.start`` holds the schedule.
    order
        [items] Items from the highest priority to the lowest.
    rule
        CLOSE or ADMIT.

    Returns
    -------
    int
        The makespan in microseconds; NEVER where memory got it stuck.
    """
    n, ranks = problem.kept.shape[0], problem.room.shape[0]
    queue, duration, kept, room = problem.queue, problem.duration, problem.kept, problem.room
    next_first, next_task, hop = problem.next_first, problem.next_task, problem.hop
    start, ready, missing, place = desk.start, desk.ready, desk.missing, desk.place
    task_at, waiting, words, head = desk.task_at, desk.waiting, desk.waiting_words, desk.head
    coming, num_coming, held = desk.coming, desk.num_coming, desk.held
    free, soonest, turn = desk.free, desk.soonest, desk.turn
    group_held, group_need, oldest, group = desk.group_held, desk.group_need, desk.oldest, problem.group
    last_forward, row_end = desk.last_forward, problem.queue_first
    left = _lay_out(problem, desk, order)
    makespan = 0
    while left > 0:
        r = 0
        for other in range(1, ranks):
            if soonest[other] < soonest[r]:
                r = other
        now = soonest[r]
        if now >= NEVER:
            return NEVER
        # What has arrived by now joins its queue.
        i = 0
        while i < num_coming[r]:
            task = coming[r, i]
            if ready[task] <= now:
                num_coming[r] -= 1
                coming[r, i] = coming[r, num_coming[r]]
                waiting[place[task]] = True
                head[queue[task]] = min(head[queue[task]], place[task])
            else:
                i += 1
        # The first of each queue; the forward one may be closed.
        head[2 * r] = _first_waiting(waiting, words, head[2 * r], row_end[2 * r + 1])
        forward = _open_forward(
            r,
            head[2 * r],
            row_end[2 * r + 1],
            rule,
            task_at,
            waiting,
            words,
            kept,
            held,
            room,
            group,
            turn,
            group_held,
            group_need,
            oldest,
        )
        head[2 * r + 1] = _first_waiting(waiting, words, head[2 * r + 1], row_end[2 * r + 2])
        at = head[2 * r + 1]
        backward = task_at[at] if at < row_end[2 * r + 2] else -1
        task = forward if backward < 0 or (forward >= 0 and not last_forward[r]) else backward
        if task >= 0:
            left -= 1
            waiting[place[task]] = False
            start[task] = now
            end = now + duration[task]
            makespan = max(makespan, end)
            free[r] = end
            last_forward[r] = task < n
            size = kept[task] if task < n else -kept[task - n]
            held[r] += size
            if rule == ADMIT:
                mine = turn[group[task if task < n else task - n]]
                group_held[mine, r] += size
                if task >= n:
                    group_need[mine, r] += size
                    while oldest[r] < group_need.shape[0] and group_need[oldest[r], r] == 0:
                        oldest[r] += 1
            for i in range(next_first[task], next_first[task + 1]):
                later = next_task[i]
                ready[later] = max(ready[later], end + hop[i])
                missing[later] -= 1
                if missing[later] > 0:
                    continue
                q = queue[later]
                other = q >> 1
                when = ready[later]
                if when <= free[other]:
                    when = free[other]
                    waiting[place[later]] = True
                    head[q] = min(head[q], place[later])
                else:
                    coming[other, num_coming[other]] = later
                    num_coming[other] += 1
                if (
                    when < soonest[other]
                    and other != r
                    and (
                        later >= n
                        or _fits(later, other, rule, kept, held, room, group, turn, group_held, group_need, oldest)
                    )
                ):
                    soonest[other] = when
        # When this rank can start something next.
        head[2 * r + 1] = _first_waiting(waiting, words, head[2 * r + 1], row_end[2 * r + 2])
        if (
            head[2 * r + 1] < row_end[2 * r + 2]
            or _open_forward(
                r,
                head[2 * r],
                row_end[2 * r + 1],
                rule,
                task_at,
                waiting,
                words,
                kept,
                held,
                room,
                group,
                turn,
                group_held,
                group_need,
                oldest,
            )
            >= 0
        ):
            soonest[r] = free[r]
            continue
        when = NEVER
        for i in range(num_coming[r]):
            later = coming[r, i]
            if ready[later] < when and (
                later >= n or _fits(later, r, rule, kept, held, room, group, turn, group_held, group_need, oldest)
            ):
                when = ready[later]
        soonest[r] = max(free[r], when)
    return makespan


@inlined
def _lay_out(problem: Problem, desk: Desk, order: Ints) -> int:
    """Reset the working memory and give all tasks their places by priority; returns how many tasks there are."""
    queue, queue_first = problem.queue, problem.queue_first
    item_first, item_task = problem.item_first, problem.item_task
    place, task_at = desk.place, desk.task_at
    n = problem.kept.shape[0]
    desk.start[:] = -1
    desk.ready[:] = 0
    for task in range(problem.inputs.shape[0]):
        desk.missing[task] = problem.inputs[task]
    desk.waiting[:] = False
    desk.num_coming[:] = 0
    desk.held[:] = 0
    desk.free[:] = 0
    desk.soonest[:] = NEVER
    desk.turn[:] = -1
    desk.group_held[:] = 0
    desk.oldest[:] = 0
    end = desk.end
    for q in range(end.shape[0]):
        end[q] = queue_first[q]
        desk.head[q] = queue_first[q + 1]
    desk.last_forward[:] = False
    groups = 0
    for item in order:
        for i in range(item_first[item], item_first[item + 1]):
            task = item_task[i]
            q = queue[task]
            place[task] = end[q]
            task_at[end[q]] = task
            end[q] += 1
        for i in range(item_first[item], item_first[item + 1]):
            task = item_task[i]
            if task >= n:
                break
            group = problem.group[task]
            if desk.turn[group] < 0:
                desk.turn[group] = groups
                for r in range(problem.need.shape[1]):
                    desk.group_need[groups, r] = problem.need[group, r]
                groups += 1
    for i in range(item_task.shape[0]):
        task = item_task[i]
        if problem.inputs[task] == 0:
            desk.waiting[place[task]] = True
            desk.head[queue[task]] = min(desk.head[queue[task]], place[task])
            desk.soonest[queue[task] >> 1] = 0
    return int(item_task.shape[0])


@inlined
def _first_waiting(waiting: Bools, words: NDArray[np.uint64], at: int, end: int) -> int:
    """First place from ``at`` on at which a task waits; ``end`` where there is none."""
    while at < end:
        if at & (WORD - 1) == 0 and words[at >> WORD_BITS] == 0:
            at += WORD
        elif waiting[at]:
            return at
        else:
            at += 1
    return end


@inlined
def _open_forward(
    r: int,
    at: int,
    end: int,
    rule: int,
    task_at: Ints,
    waiting: Bools,
    words: NDArray[np.uint64],
    kept: Ints,
    held: Ints,
    room: Ints,
    group: Ints,
    turn: Ints,
    group_held: Ints,
    group_need: Ints,
    oldest: Ints,
) -> int:
    """The forward that a rank's queue offers, from place ``at`` on; -1 where it is empty or closed."""
    at = _first_waiting(waiting, words, at, end)
    while at < end:
        task = int(task_at[at])
        if _fits(task, r, rule, kept, held, room, group, turn, group_held, group_need, oldest):
            return task
        if rule == CLOSE:
            return -1
        at = _first_waiting(waiting, words, at + 1, end)
    return -1


@inlined
def _fits(
    task: int,
    r: int,
    rule: int,
    kept: Ints,
    held: Ints,
    room: Ints,
    group: Ints,
    turn: Ints,
    group_held: Ints,
    group_need: Ints,
    oldest: Ints,
) -> bool:
    """Whether a rank's memory lets it start a forward.

    By the rule ADMIT what a group needs yet and what all later ones hold stays within the room on every rank: then the
    oldest group can always run to its end, whatever the order.
    """
    later = held[r] + kept[task]
    if later > room[r]:
        return False
    if rule == CLOSE or room[r] == NEVER:
        return True
    mine = turn[group[task]]
    for p in range(oldest[r], mine):
        later -= group_held[p, r]
    for p in range(mine - 1, oldest[r] - 1, -1):
        if group_need[p, r] + later > room[r]:
            return False
        later += group_held[p, r]
    return True
