"""From an order of stage tasks on each rank to a plan: start times, matched transfers, peaks, digest.

Every transfer is issued when the data leaves its producer in planned time, on both sides, and transfers that leave at
the same instant follow one fixed order on all ranks. Compute that ends by then only needs transfers that left earlier,
so whichever transfer is first among those not done has been issued on both sides: the order progresses even where each
rank runs its transfers one after another and each waits for its peer.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from dip.digests import plan_digest
from dip.planner.v1 import planner_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dip.memory import Way
    from dip.work import Edge, Work


class Phase(IntEnum):
    """What a stage task does for its cell."""

    FORWARD = pb.ACTION_KIND_FORWARD
    BACKWARD = pb.ACTION_KIND_BACKWARD
    BACKWARD_INPUT = pb.ACTION_KIND_BACKWARD_INPUT
    BACKWARD_WEIGHT = pb.ACTION_KIND_BACKWARD_WEIGHT


Task = tuple[Phase, int]
"""A stage task: its phase and its cell."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """When each task runs: the earliest times that an order allows.

    Parameters
    ----------
    start_us, end_us
        By task.
    makespan_us
        End of the last task; 0 where there are none.
    """

    start_us: dict[Task, int]
    end_us: dict[Task, int]
    makespan_us: int


class OrderError(ValueError):
    """An order that cannot run: it waits for itself, or does not hold every task once, on its rank."""


def time_order(work: Work, orders: Sequence[Sequence[Task]], ways: Sequence[Way]) -> Timing:
    """Earliest start and end of every task when each rank runs its tasks in the given order.

    Parameters
    ----------
    work
        The stage tasks.
    orders
        For each rank, its tasks in order; each task exactly once, on its cell's rank.
    ways
        For each cell, how its layers run.

    Raises
    ------
    OrderError
        If the order waits for itself, or does not hold every task once, on its rank.
    """
    _check_tasks(work, orders)
    preds = _predecessors(work, orders)
    ready = {task: 0 for order in orders for task in order}
    missing = {task: len(of_task) for task, of_task in preds.items()}
    succs: dict[Task, list[tuple[Task, int]]] = {task: [] for task in preds}
    for task, of_task in preds.items():
        for earlier, hop in of_task:
            succs[earlier].append((task, hop))
    start: dict[Task, int] = {}
    end: dict[Task, int] = {}
    queue = deque(task for task, count in missing.items() if not count)
    while queue:
        task = queue.popleft()
        start[task] = ready[task]
        end[task] = done = ready[task] + task_us(work, task, ways[task[1]])
        for later, hop in succs[task]:
            ready[later] = max(ready[later], done + hop)
            missing[later] -= 1
            if not missing[later]:
                queue.append(later)
    if len(end) != len(preds):
        stuck = next(task for task in preds if task not in end)
        raise OrderError(f"the order waits for itself: {len(preds) - len(end)} tasks never start, one is {stuck}")
    return Timing(start_us=start, end_us=end, makespan_us=max(end.values(), default=0))


def task_us(work: Work, task: Task, way: Way) -> int:
    """Duration of a task."""
    cost = work.cost(task[1], way)
    match task[0]:
        case Phase.FORWARD:
            return cost.forward_us
        case Phase.BACKWARD:
            return cost.backward_us
        case Phase.BACKWARD_INPUT:
            return cost.backward_input_us
        case _:
            return cost.backward_weight_us


def _check_tasks(work: Work, orders: Sequence[Sequence[Task]]) -> None:
    given = {task: rank for rank, order in enumerate(orders) for task in order}
    wanted: list[Task] = []
    for cell in range(work.num_cells):
        wanted.append((Phase.FORWARD, cell))
        if work.has_backward(cell) and (Phase.BACKWARD_INPUT, cell) not in given:
            wanted.append((Phase.BACKWARD, cell))
        elif work.has_backward(cell):
            halves = (Phase.BACKWARD_INPUT,) if work.module_of(cell).frozen else _HALVES
            wanted += [(phase, cell) for phase in halves]
    for phase, cell in wanted:
        rank = work.cell_chunk[cell].rank
        if given.get((phase, cell)) != rank:
            raise OrderError(f"the order of rank {rank} misses {phase.name} of cell {cell}")
    many = sum(map(len, orders))
    if many != len(wanted):
        raise OrderError(
            f"the order holds {many} tasks, the work has {len(wanted)}: some are there twice, or for nothing"
        )


_HALVES = Phase.BACKWARD_INPUT, Phase.BACKWARD_WEIGHT


def _gradient_phases(orders: Sequence[Sequence[Task]]) -> dict[int, Phase]:
    """For each cell with a backward, the phase that gives the gradient that the cell before waits for."""
    return {cell: phase for order in orders for phase, cell in order if phase in (Phase.BACKWARD, Phase.BACKWARD_INPUT)}


def _predecessors(work: Work, orders: Sequence[Sequence[Task]]) -> dict[Task, list[tuple[Task, int]]]:
    """What each task waits for, with the hop in between: its inputs and the task before it on its rank."""
    preds: dict[Task, list[tuple[Task, int]]] = {}
    for order in orders:
        for i, task in enumerate(order):
            preds[task] = [(order[i - 1], 0)] if i else []
    gradient = _gradient_phases(orders)
    for cell, phase in gradient.items():
        preds[phase, cell].append(((Phase.FORWARD, cell), 0))
        if (Phase.BACKWARD_WEIGHT, cell) in preds:
            preds[Phase.BACKWARD_WEIGHT, cell].append(((phase, cell), 0))
    for edge in work.edges:
        preds[Phase.FORWARD, edge.consumer].append(((Phase.FORWARD, edge.producer), edge.hop_us))
        if work.has_backward(edge.producer):
            earlier, later = (gradient[edge.consumer], edge.consumer), (gradient[edge.producer], edge.producer)
            preds[later].append((earlier, edge.hop_us))
    return preds


def peak_bytes(work: Work, orders: Sequence[Sequence[Task]], ways: Sequence[Way]) -> list[int]:
    """Largest number of bytes that each rank holds, static bytes included."""
    peaks = []
    for rank, order in enumerate(orders):
        held = peak = work.static_bytes[rank]
        for phase, cell in order:
            if not work.has_backward(cell):
                continue
            cost, split = work.cost(cell, ways[cell]), False
            if phase == Phase.FORWARD:
                held += cost.kept_bytes
            elif phase == Phase.BACKWARD_INPUT:
                held, split = held + cost.split_kept_bytes - cost.kept_bytes, True
            peak = max(peak, held)
            if phase == Phase.BACKWARD:
                held -= cost.kept_bytes
            elif phase == Phase.BACKWARD_WEIGHT or (split and work.module_of(cell).frozen):
                held -= cost.split_kept_bytes
        peaks.append(peak)
    return peaks


def lower(
    work: Work,
    *,
    batch: pb.Batch,
    partition: pb.Partition,
    orders: Sequence[Sequence[Task]],
    ways: Sequence[Way],
    lower_bound_us: int,
    search: pb.SearchReport | None = None,
    fallback: bool = False,
) -> pb.Plan:
    """Make the plan that runs the given order.

    Parameters
    ----------
    work
        The stage tasks.
    batch, partition
        What they were made from; the digest covers both.
    orders
        For each rank, its tasks in order.
    ways
        For each cell, how its layers run.
    lower_bound_us
        Proven bound on the makespan of any schedule of this work.
    search
        How the order was found.
    fallback
        Whether it is the fixed fallback.

    Raises
    ------
    OrderError
        If the order cannot run, or does not hold every task once.
    """
    timing = time_order(work, orders, ways)
    transfers = _transfers(work, orders, timing)
    plan = pb.Plan(
        partition=partition,
        makespan_us=timing.makespan_us,
        lower_bound_us=lower_bound_us,
        search=search,
        fallback=fallback,
    )
    plan.sub_microbatches.extend(sub_microbatch_message(work, p) for p in range(len(work.parts)))
    peaks = peak_bytes(work, orders, ways)
    for rank, order in enumerate(orders):
        keyed: list[_Keyed] = [
            ((timing.end_us[task], 0), _compute(work, task, ways[task[1]], timing)) for task in order
        ]
        keyed.extend(transfers[rank])
        keyed.sort(key=lambda pair: pair[0])
        schedule = plan.ranks.add(rank=rank, peak_memory_bytes=peaks[rank])
        schedule.actions.extend(action for _, action in keyed)
    plan.digest = plan_digest(plan, batch)
    return plan


def sub_microbatch_message(work: Work, part_id: int) -> pb.SubMicrobatch:
    """Message of one sub-microbatch."""
    part = work.parts[part_id]
    made = pb.SubMicrobatch(id=part_id, module=work.job.modules[part.module].name, microbatch=part.microbatch)
    for sample, index, units in zip(part.samples, part.instances, part.sizes, strict=True):
        made.instances.add(sample=sample, index=index, units=units)
    return made


def _compute(work: Work, task: Task, way: Way, timing: Timing) -> pb.Action:
    phase, cell = task
    return pb.Action(
        kind=phase.value,
        module=work.module_of(cell).name,
        chunk=work.cell_chunk[cell].index,
        sub_microbatch=work.cell_part[cell],
        start_us=timing.start_us[task],
        end_us=timing.end_us[task],
        strategies=[
            pb.StrategyRun(name=name, num_layers=count) for name, count in way if phase != Phase.BACKWARD_WEIGHT
        ],
    )


_Keyed = tuple[tuple[int, ...], pb.Action]


def _transfers(work: Work, orders: Sequence[Sequence[Task]], timing: Timing) -> list[list[_Keyed]]:
    """Every rank's transfers, each with its place: when the data leaves, then one order that all ranks share."""
    placed: list[list[_Keyed]] = [[] for _ in orders]
    gradient = _gradient_phases(orders)
    for number, edge in enumerate(work.edges):
        if not edge.crosses:
            continue
        left = timing.end_us[Phase.FORWARD, edge.producer]
        kinds = pb.ACTION_KIND_SEND_ACTIVATION, pb.ACTION_KIND_RECV_ACTIVATION
        _place(work, placed, edge, (left, 1, 0, number), kinds, backward=False)
        if work.has_backward(edge.producer):
            left = timing.end_us[gradient[edge.consumer], edge.consumer]
            kinds = pb.ACTION_KIND_SEND_GRADIENT, pb.ACTION_KIND_RECV_GRADIENT
            _place(work, placed, edge, (left, 1, 1, number), kinds, backward=True)
    return placed


def _place(
    work: Work,
    placed: list[list[_Keyed]],
    edge: Edge,
    key: tuple[int, ...],
    kinds: tuple[pb.ActionKind.ValueType, pb.ActionKind.ValueType],
    *,
    backward: bool,
) -> None:
    source, target = (edge.consumer, edge.producer) if backward else (edge.producer, edge.consumer)
    ends = work.cell_chunk[source].rank, work.cell_chunk[target].rank
    for kind, here, peer in zip(kinds, ends, reversed(ends), strict=True):
        action = pb.Action(
            kind=kind,
            module=work.module_of(source).name,
            chunk=work.cell_chunk[source].index,
            sub_microbatch=work.cell_part[source],
            peer=peer,
            consumer_module=work.module_of(target).name,
            consumer_chunk=work.cell_chunk[target].index,
            consumer_sub_microbatch=work.cell_part[target],
            start_us=key[0],
            end_us=key[0] + edge.hop_us,
        )
        placed[here].append((key, action))
