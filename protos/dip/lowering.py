"""From an order of stage tasks on each rank to a plan: start times, matched transfers, peaks, digest.

Every transfer is issued when the data leaves its producer in planned time, on both sides, and transfers that leave at
the same instant follow one fixed order on all ranks. Compute that ends by then only needs transfers that left earlier,
so whichever transfer is first among those not done has been issued on both sides: the order progresses even where each
rank runs its transfers one after another and each waits for its peer.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from dip.digests import plan_digest
from dip.planner.v1 import planner_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

    from dip.chunk_costs import CellCost
    from dip.memory import Way
    from dip.work import Work

    _Actions = RepeatedCompositeFieldContainer[pb.Action]


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

    Tasks are numbered by phase, ``n`` being the number of cells: the forward of cell ``c`` is task ``c``, its backward
    or the input half of it ``n + c``, its weight half ``2n + c``.

    Parameters
    ----------
    start_us, end_us
        [3n] By number of the task; -1 where there is none.
    makespan_us
        End of the last task; 0 where there are none.
    """

    start_us: list[int]
    end_us: list[int]
    makespan_us: int


class OrderError(ValueError):
    """An order that cannot run: it waits for itself, or does not hold every task once, on its rank."""


def task_number(task: Task, num_cells: int) -> int:
    """Place of a task in the lists of :class:`Timing`."""
    phase, cell = task
    return _BLOCKS[phase] * num_cells + cell


_BLOCKS = (-1, 0, 1, 1, 2)
"""By phase."""


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
    return _time(work, orders, work.costs(ways))


def _time(work: Work, orders: Sequence[Sequence[Task]], costs: Sequence[CellCost]) -> Timing:
    """Run every rank as far as its order and what came from others let it, until all are done."""
    _check_tasks(work, orders)
    n, successors, rank_of = work.num_cells, work.successors, work.cell_rank
    numbered = [
        [(_BLOCKS[phase] * n + cell, _duration_us(costs[cell], phase)) for phase, cell in order] for order in orders
    ]
    missing = work.num_inputs + [1] * n  # a weight half waits for its input half
    start, end, ready = [-1] * (3 * n), [-1] * (3 * n), [0] * (3 * n)
    done, free = [0] * len(orders), [0] * len(orders)
    able = list(range(len(orders)))
    while able:
        rank = able.pop()
        order = numbered[rank]
        while done[rank] < len(order):
            task, duration = order[done[rank]]
            if missing[task]:
                break
            done[rank] += 1
            start[task] = max(free[rank], ready[task])
            end[task] = free[rank] = start[task] + duration
            if n <= task < 2 * n:
                ready[task + n], missing[task + n] = free[rank], 0
            for later, hop in successors[task] if task < 2 * n else ():
                ready[later] = max(ready[later], free[rank] + hop)
                missing[later] -= 1
                if not missing[later] and rank_of[later % n] != rank:
                    able.append(rank_of[later % n])
    total = sum(map(len, orders))
    if sum(done) != total:
        stuck = next(tasks[count] for tasks, count in zip(orders, done, strict=True) if count < len(tasks))
        raise OrderError(f"the order waits for itself: {total - sum(done)} tasks never start, one is {stuck}")
    return Timing(start_us=start, end_us=end, makespan_us=max(end, default=0) if total else 0)


def task_us(work: Work, task: Task, way: Way) -> int:
    """Duration of a task."""
    return _duration_us(work.cost(task[1], way), task[0])


def _duration_us(cost: CellCost, phase: Phase) -> int:
    return cost[phase - 1]  # a cost lists the durations first, in the order of the phases


def _check_tasks(work: Work, orders: Sequence[Sequence[Task]]) -> None:
    """Check that every cell's tasks are there once, on its rank, and nothing else."""
    given = [[-1] * work.num_cells for _ in range(len(Phase) + 1)]
    for rank, order in enumerate(orders):
        for phase, cell in order:
            given[phase][cell] = rank
    wanted = 0
    for cell, (rank, trains) in enumerate(zip(work.cell_rank, work.cell_trains, strict=True)):
        phases: tuple[Phase, ...] = _EVALUATED
        if trains and given[Phase.BACKWARD_INPUT][cell] < 0:
            phases = _WHOLE
        elif trains:
            phases = _FROZEN_HALVES if work.module_of(cell).frozen else _HALVES
        for phase in phases:
            if given[phase][cell] != rank:
                raise OrderError(f"the order of rank {rank} misses {phase.name} of cell {cell}")
        wanted += len(phases)
    many = sum(map(len, orders))
    if many != wanted:
        raise OrderError(f"the order holds {many} tasks, the work has {wanted}: some are there twice, or for nothing")


_EVALUATED = (Phase.FORWARD,)
_WHOLE = (Phase.FORWARD, Phase.BACKWARD)
_FROZEN_HALVES = (Phase.FORWARD, Phase.BACKWARD_INPUT)
_HALVES = (Phase.FORWARD, Phase.BACKWARD_INPUT, Phase.BACKWARD_WEIGHT)


def peak_bytes(work: Work, orders: Sequence[Sequence[Task]], ways: Sequence[Way]) -> list[int]:
    """Largest number of bytes that each rank holds, static bytes included."""
    costs = work.costs(ways)
    return [_peak(work, order, costs, static) for order, static in zip(orders, work.static_bytes, strict=True)]


def _peak(work: Work, order: Sequence[Task], costs: Sequence[CellCost], static_bytes: int) -> int:
    held = peak = static_bytes
    for phase, cell in order:
        if not work.cell_trains[cell]:
            continue
        kept, split_kept = costs[cell].kept_bytes, costs[cell].split_kept_bytes
        if phase == Phase.FORWARD:
            held += kept
        elif phase == Phase.BACKWARD_INPUT:
            held += split_kept - kept
        peak = max(peak, held)
        if phase == Phase.BACKWARD:
            held -= kept
        elif phase == Phase.BACKWARD_WEIGHT or (phase == Phase.BACKWARD_INPUT and work.module_of(cell).frozen):
            held -= split_kept
    return peak


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
    costs = work.costs(ways)
    timing = _time(work, orders, costs)
    plan = pb.Plan(
        partition=partition,
        makespan_us=timing.makespan_us,
        lower_bound_us=lower_bound_us,
        search=search,
        fallback=fallback,
    )
    plan.sub_microbatches.extend(sub_microbatch_message(work, p) for p in range(len(work.parts)))
    transfers = _transfers(work, timing)
    writer = _Writer(work, timing, ways)
    for rank, (order, static_bytes) in enumerate(zip(orders, work.static_bytes, strict=True)):
        peak = _peak(work, order, costs, static_bytes)
        schedule = plan.ranks.add(rank=rank, peak_memory_bytes=peak)
        writer.write(schedule, order, transfers[rank])
    plan.digest = plan_digest(plan, batch)
    return plan


def sub_microbatch_message(work: Work, part_id: int) -> pb.SubMicrobatch:
    """Message of one sub-microbatch."""
    part = work.parts[part_id]
    made = pb.SubMicrobatch(id=part_id, module=work.job.modules[part.module].name, microbatch=part.microbatch)
    for sample, index, units in zip(part.samples, part.instances, part.sizes, strict=True):
        made.instances.add(sample=sample, index=index, units=units)
    return made


_Placed = tuple[int, int, int]
"""An action and its place on its rank: when its data leaves, then which goes first; and its number."""


def _transfers(work: Work, timing: Timing) -> list[list[_Placed]]:
    """Every rank's transfers: activations of edge ``i`` have number ``i``, gradients ``i`` and all edges on.

    Those that leave at one instant keep the order of their numbers, on all ranks.
    """
    n, rank_of, end_us, edges = work.num_cells, work.cell_rank, timing.end_us, work.edges
    placed: list[list[_Placed]] = [[] for _ in range(work.job.ranks)]
    for number, (producer, consumer, _, _, crosses) in enumerate(edges):
        if not crosses:
            continue
        ends = placed[rank_of[producer]], placed[rank_of[consumer]]
        moved = [(end_us[producer], 1, number)]
        if work.cell_trains[producer]:
            moved.append((end_us[n + consumer], 1, len(edges) + number))
        for of_rank in ends:
            of_rank += moved
    return placed


class _Writer:
    """Writes the actions of ranks as messages.

    Parameters
    ----------
    work, timing
        The stage tasks, and when they run.
    ways
        For each cell, how its layers run.
    """

    def __init__(self, work: Work, timing: Timing, ways: Sequence[Way]) -> None:
        modules = work.job.modules
        cells = zip(work.cell_chunk, work.cell_part, strict=True)
        self._names = [(modules[chunk.module].name, chunk.index, part) for chunk, part in cells]
        self._work, self._timing, self._ways, self._edges = work, timing, ways, work.edges
        self._strategies: dict[Way, list[pb.StrategyRun]] = {}

    def write(self, schedule: pb.RankSchedule, order: Sequence[Task], transfers: Sequence[_Placed]) -> None:
        """Write a rank's compute and transfers where they belong among each other."""
        n, end_us = self._work.num_cells, self._timing.end_us
        placed = [(end_us[task_number(task, n)], 0, i) for i, task in enumerate(order)]
        placed += transfers
        placed.sort()
        rank, actions = schedule.rank, schedule.actions
        for when, is_transfer, number in placed:
            if is_transfer:
                self._transfer(actions, rank, when, number)
            else:
                self._compute(actions, order[number])

    def _compute(self, actions: _Actions, task: Task) -> None:
        phase, cell = task
        number = _BLOCKS[phase] * len(self._names) + cell
        module, chunk, part = self._names[cell]
        actions.add(
            kind=_COMPUTE[phase],
            module=module,
            chunk=chunk,
            sub_microbatch=part,
            start_us=self._timing.start_us[number],
            end_us=self._timing.end_us[number],
            strategies=() if phase == Phase.BACKWARD_WEIGHT else self._runs(self._ways[cell]),
        )

    def _runs(self, way: Way) -> list[pb.StrategyRun]:
        found = self._strategies.get(way)
        if found is None:
            found = [pb.StrategyRun(name=name, num_layers=count) for name, count in way]
            self._strategies[way] = found
        return found

    def _transfer(self, actions: _Actions, rank: int, left_us: int, number: int) -> None:
        rank_of = self._work.cell_rank
        backward, edge = divmod(number, len(self._edges))
        source, target, _, hop_us, _ = self._edges[edge]
        if backward:
            source, target = target, source
        receives = rank_of[source] != rank
        module, chunk, part = self._names[source]
        consumer_module, consumer_chunk, consumer_part = self._names[target]
        actions.add(
            kind=_TRANSFERS[backward][receives],
            module=module,
            chunk=chunk,
            sub_microbatch=part,
            peer=rank_of[source if receives else target],
            consumer_module=consumer_module,
            consumer_chunk=consumer_chunk,
            consumer_sub_microbatch=consumer_part,
            start_us=left_us,
            end_us=left_us + hop_us,
        )


_COMPUTE = (
    pb.ACTION_KIND_UNSPECIFIED,
    pb.ACTION_KIND_FORWARD,
    pb.ACTION_KIND_BACKWARD,
    pb.ACTION_KIND_BACKWARD_INPUT,
    pb.ACTION_KIND_BACKWARD_WEIGHT,
)
"""Kinds of compute, by phase: looking up an enumeration's value takes longer than all else of a small message."""

_TRANSFERS = (
    (pb.ACTION_KIND_SEND_ACTIVATION, pb.ACTION_KIND_RECV_ACTIVATION),
    (pb.ACTION_KIND_SEND_GRADIENT, pb.ACTION_KIND_RECV_GRADIENT),
)
"""Kinds of transfers: of activations and of gradients; to send and to receive each."""
