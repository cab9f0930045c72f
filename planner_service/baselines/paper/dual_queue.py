"""Dual-queue interleaving, compiled: from an order of segments to a schedule (the paper's step b).

Every rank keeps its forwards and its backwards that can run in two queues by priority. The rank that can start
something first goes next. With both kinds ready it alternates, as 1F1B does; otherwise it takes what is ready. A rank
whose memory does not hold the next forward closes its forward queue until a backward has freed enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner_service.baselines.paper.arrays import NEVER, WORD, WORD_BITS
from planner_service.compiling import bare_kernel, inlined

if TYPE_CHECKING:
    from planner_service.baselines.paper.arrays import Desk, Ints, Problem

CLOSE, ADMIT = 0, 1
"""Memory rules. CLOSE is the paper's: no forward while the next one would not fit; it can get stuck where memory is
tight. ADMIT, which cannot, starts a forward only where every earlier microbatch keeps the room that it still needs."""


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
    left, makespan = _lay_out(problem, desk, order), 0
    while left > 0:
        r = 0
        for other in range(1, problem.room.shape[0]):
            if desk.soonest[other] < desk.soonest[r]:
                r = other
        now = desk.soonest[r]
        if now >= NEVER:
            return NEVER
        _join_queues(problem, desk, r, now)
        task = _pick(problem, desk, rule, r)
        if task >= 0:
            left -= 1
            makespan = max(makespan, _run(problem, desk, rule, r, task, now))
        desk.soonest[r] = _soonest(problem, desk, rule, r)
    return makespan


@inlined
def _join_queues(problem: Problem, desk: Desk, r: int, now: int) -> None:
    """Put what has arrived at a rank by ``now`` into its queues."""
    i = 0
    while i < desk.num_coming[r]:
        task = desk.coming[r, i]
        if desk.ready[task] <= now:
            desk.num_coming[r] -= 1
            desk.coming[r, i] = desk.coming[r, desk.num_coming[r]]
            _wait(problem, desk, task)
        else:
            i += 1


@inlined
def _wait(problem: Problem, desk: Desk, task: int) -> None:
    """Put a task into its place in its queue."""
    q, at = problem.queue[task], desk.place[task]
    desk.waiting[at] = True
    desk.head[q] = min(desk.head[q], at)


@inlined
def _pick(problem: Problem, desk: Desk, rule: int, r: int) -> int:
    """What a rank runs next, of what waits in its queues; -1 where that is nothing, or only what memory refuses."""
    forward, backward = _open_forward(problem, desk, rule, r), _first_backward(problem, desk, r)
    return forward if backward < 0 or (forward >= 0 and not desk.last_forward[r]) else backward


@inlined
def _run(problem: Problem, desk: Desk, rule: int, r: int, task: int, now: int) -> int:
    """Start a task of a rank and hand on its output; returns its end."""
    n = problem.kept.shape[0]
    desk.waiting[desk.place[task]] = False
    desk.start[task] = now
    end = now + problem.duration[task]
    desk.free[r] = end
    desk.last_forward[r] = task < n
    _hold(problem, desk, rule, r, task)
    for i in range(problem.next_first[task], problem.next_first[task + 1]):
        later = problem.next_task[i]
        desk.ready[later] = max(desk.ready[later], end + problem.hop[i])
        desk.missing[later] -= 1
        if desk.missing[later] == 0:
            _arrive(problem, desk, rule, r, later)
    return int(end)


@inlined
def _hold(problem: Problem, desk: Desk, rule: int, r: int, task: int) -> None:
    """Let a forward take its rank's memory, or a backward give it back."""
    n = problem.kept.shape[0]
    size = problem.kept[task] if task < n else -problem.kept[task - n]
    desk.held[r] += size
    if rule == ADMIT:
        mine = desk.turn[problem.group[task if task < n else task - n]]
        desk.group_held[mine, r] += size
        if task >= n:
            desk.group_need[mine, r] += size
            while desk.oldest[r] < desk.group_need.shape[0] and desk.group_need[desk.oldest[r], r] == 0:
                desk.oldest[r] += 1


@inlined
def _arrive(problem: Problem, desk: Desk, rule: int, r: int, task: int) -> None:
    """Let a task that has all inputs wait in its queue, or come; rank ``r``, which runs now, is looked at later."""
    other, when = problem.queue[task] >> 1, desk.ready[task]
    if when <= desk.free[other]:
        when = desk.free[other]
        _wait(problem, desk, task)
    else:
        desk.coming[other, desk.num_coming[other]] = task
        desk.num_coming[other] += 1
    if (
        when < desk.soonest[other]
        and other != r
        and (task >= problem.kept.shape[0] or _fits(problem, desk, rule, other, task))
    ):
        desk.soonest[other] = when


@inlined
def _soonest(problem: Problem, desk: Desk, rule: int, r: int) -> int:
    """When a rank can start something next; NEVER while it waits for inputs or memory."""
    if _first_backward(problem, desk, r) >= 0 or _open_forward(problem, desk, rule, r) >= 0:
        return int(desk.free[r])
    when = NEVER
    for i in range(desk.num_coming[r]):
        task = desk.coming[r, i]
        if desk.ready[task] < when and (task >= problem.kept.shape[0] or _fits(problem, desk, rule, r, task)):
            when = desk.ready[task]
    return int(max(desk.free[r], when))


@inlined
def _lay_out(problem: Problem, desk: Desk, order: Ints) -> int:
    """Clear the desk and give all tasks their places by priority; returns how many tasks there are."""
    _clear(problem, desk)
    groups = 0
    for item in order:
        tasks = problem.item_task[problem.item_first[item] : problem.item_first[item + 1]]
        groups = _promise(problem, desk, tasks, groups)
        for task in tasks:
            q = problem.queue[task]
            desk.place[task] = desk.end[q]
            desk.task_at[desk.end[q]] = task
            desk.end[q] += 1
    for task in problem.item_task:
        if problem.inputs[task] == 0:
            _wait(problem, desk, task)
            desk.soonest[problem.queue[task] >> 1] = 0
    return int(problem.item_task.shape[0])


@inlined
def _clear(problem: Problem, desk: Desk) -> None:
    """Reset what the last schedule has left."""
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
    desk.last_forward[:] = False
    for q in range(desk.end.shape[0]):
        desk.end[q] = problem.queue_first[q]
        desk.head[q] = problem.queue_first[q + 1]


@inlined
def _promise(problem: Problem, desk: Desk, tasks: Ints, groups: int) -> int:
    """Promise memory to the groups of an item that have no promise yet; returns how many groups have one."""
    for task in tasks:
        if task >= problem.kept.shape[0]:
            break
        group = problem.group[task]
        if desk.turn[group] < 0:
            desk.turn[group] = groups
            for r in range(problem.need.shape[1]):
                desk.group_need[groups, r] = problem.need[group, r]
            groups += 1
    return groups


@inlined
def _first_waiting(desk: Desk, at: int, end: int) -> int:
    """First place from ``at`` on at which a task waits; ``end`` where there is none."""
    while at < end:
        if at & (WORD - 1) == 0 and desk.waiting_words[at >> WORD_BITS] == 0:
            at += WORD
        elif desk.waiting[at]:
            return at
        else:
            at += 1
    return end


@inlined
def _first_backward(problem: Problem, desk: Desk, r: int) -> int:
    """The backward that a rank's queue offers; -1 where it is empty."""
    q = 2 * r + 1
    end = problem.queue_first[q + 1]
    desk.head[q] = _first_waiting(desk, desk.head[q], end)
    return int(desk.task_at[desk.head[q]]) if desk.head[q] < end else -1


@inlined
def _open_forward(problem: Problem, desk: Desk, rule: int, r: int) -> int:
    """The forward that a rank's queue offers; -1 where it is empty or closed."""
    q = 2 * r
    end = problem.queue_first[q + 1]
    at = desk.head[q] = _first_waiting(desk, desk.head[q], end)
    while at < end:
        task = int(desk.task_at[at])
        if _fits(problem, desk, rule, r, task):
            return task
        if rule == CLOSE:
            return -1
        at = _first_waiting(desk, at + 1, end)
    return -1


@inlined
def _fits(problem: Problem, desk: Desk, rule: int, r: int, task: int) -> bool:
    """Whether a rank's memory lets it start a forward.

    By the rule ADMIT what a group needs yet and what all later ones hold stays within the room on every rank: then the
    oldest group can always run to its end, whatever the order.
    """
    room = problem.room[r]
    later = desk.held[r] + problem.kept[task]
    if later > room:
        return False
    if rule == CLOSE or room == NEVER:
        return True
    mine, oldest = desk.turn[problem.group[task]], desk.oldest[r]
    for p in range(oldest, mine):
        later -= desk.group_held[p, r]
    for p in range(mine - 1, oldest - 1, -1):
        if desk.group_need[p, r] + later > room:
            return False
        later += desk.group_held[p, r]
    return True
