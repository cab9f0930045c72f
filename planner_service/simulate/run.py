"""The virtual clock: ranks run their actions in order, transfers take their hop, compute waits for what it consumes.

A rank issues a transfer when it comes to it, that is, when the compute before it has ended, and goes on. Data is under
way once both sides have issued the transfer, and arrives one hop later; hops do not slow each other down. With the
durations that a plan was made with this is its own timing: receives are issued before their data leaves. With other
durations a rank that is late holds up its peers, as with transports that need both sides.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from dip.lowering import Phase, task_us
from dip.validation import validate_plan_request

from planner_service.simulate.errors import OverMemoryError, WaitsForItselfError
from planner_service.simulate.parts import plan_work
from planner_service.simulate.program import Op
from planner_service.simulate.reading import read_program
from planner_service.simulate.result import RankUse, Simulation, TaskRun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dip.planner.v1 import planner_pb2 as pb

    from planner_service.simulate.noise import Durations
    from planner_service.simulate.program import Placed, Program

_UNKNOWN = -1


def simulate(request: pb.PlanRequest, plan: pb.Plan, *, durations: Durations | None = None) -> Simulation:
    """Run a plan in virtual time.

    Parameters
    ----------
    request
        What the plan answers: costs, links and memory are its.
    plan
        Any plan, whoever made it. Only its partition, its sub-microbatches and the order and strategies of its actions
        count; the times that it states do not.
    durations
        What each action really takes; by default what the costs say.

    Returns
    -------
    Simulation
        Every task as early as the order of its rank and its transfers allow.

    Raises
    ------
    InvalidRequestError
        If the request breaks the contract.
    SimulationError
        If the plan cannot be run: the subclass says why.
    ValueError
        If ``durations`` answers less than 0.
    """
    validate_plan_request(request)
    work, places = plan_work(request, plan)
    program = read_program(work, places, plan.ranks)
    machine = _Machine(program, durations)
    machine.run()
    return _result(program, machine)


class _Machine:
    """Clocks of all ranks, and what is under way between them."""

    def __init__(self, program: Program, durations: Durations | None) -> None:
        self.program, self.durations = program, durations
        work = program.work
        self.clock = [0] * work.job.ranks
        self.position = [0] * work.job.ranks
        self.last: list[int] = [_UNKNOWN] * work.job.ranks
        self.start: dict[int, int] = {}
        self.end: dict[int, int] = {}
        self.after: dict[int, int] = {}
        # For each transfer: when each side issued it and the task that was then the side's last; when it arrives.
        self.sent: dict[int, tuple[int, int]] = {}
        self.posted: dict[int, tuple[int, int]] = {}
        self.arrival: dict[int, int] = {}
        self.took = {task: self._took(task, placed) for task, placed in program.tasks.items()}

    def _took(self, task: int, placed: Placed) -> int:
        work = self.program.work
        cell = task % work.num_cells
        planned_us = task_us(work, (Phase(placed.message.kind), cell), self.program.ways[cell])
        return self._real(placed, planned_us)

    def _real(self, placed: Placed, planned_us: int) -> int:
        if self.durations is None:
            return planned_us
        real_us = self.durations(placed.rank, placed.message, planned_us)
        if real_us < 0:
            raise ValueError(f"rank {placed.rank}, action {placed.action}: duration is {real_us}, must be at least 0")
        return real_us

    def run(self) -> None:
        """Let ranks go on until none can; which one goes first makes no difference."""
        awake = deque(range(len(self.clock)))
        while awake:
            awake.extend(self._advance(awake.popleft()))
        stuck = [self._stuck(rank) for rank, steps in enumerate(self.program.steps) if self.position[rank] < len(steps)]
        if stuck:
            # ranks that wait for others may do so for one that waits for itself: that one is to blame
            raise min(stuck, key=lambda one: one[0])[1]

    def _stuck(self, rank: int) -> tuple[bool, WaitsForItselfError]:
        """Whether a rank that goes no further waits for another, and what it waits for."""
        _, task, action = self.program.steps[rank][self.position[rank]]
        unmet = [earlier for earlier in self.program.local_needs[task] if earlier not in self.end]
        if unmet:
            why = f"waits for action {self.program.tasks[unmet[0]].action}, which comes later"
            return False, WaitsForItselfError(why, rank=rank, action=action)
        for transfer in self.program.remote_needs[task]:
            if transfer not in self.posted:
                why = f"waits for what action {self.program.receives[transfer].action} receives, which comes later"
                return False, WaitsForItselfError(why, rank=rank, action=action)
        transfer = next(t for t in self.program.remote_needs[task] if t not in self.arrival)
        send = self.program.sends[transfer]
        why = f"waits for action {send.action} of rank {send.rank}, which is never reached"
        return True, WaitsForItselfError(why, rank=rank, action=action)

    def _advance(self, rank: int) -> set[int]:
        """Run a rank up to the first task that waits; returns the ranks that got something."""
        woken: set[int] = set()
        steps, receives = self.program.steps[rank], self.program.receives
        while self.position[rank] < len(steps):
            op, number, _ = steps[self.position[rank]]
            if op == Op.COMPUTE:
                if not self._compute(rank, number):
                    break
            else:
                issued = self.sent if op == Op.SEND else self.posted
                issued[number] = self.clock[rank], self.last[rank]
                if number in self.sent and number in self.posted:
                    self.arrival[number] = max(self.sent[number][0], self.posted[number][0]) + self._hop(number)
                    woken.add(receives[number].rank)
            self.position[rank] += 1
        return woken - {rank}

    def _hop(self, transfer: int) -> int:
        edges = self.program.work.edges
        return self._real(self.program.sends[transfer], edges[transfer % len(edges)].hop_us)

    def _compute(self, rank: int, task: int) -> bool:
        """Run a task if what it consumes is there or on its way."""
        if any(earlier not in self.end for earlier in self.program.local_needs[task]):
            return False
        begin, after = self.clock[rank], self.last[rank]
        for transfer in self.program.remote_needs[task]:
            arrival = self.arrival.get(transfer)
            if arrival is None:
                return False
            if arrival > begin:
                sent, posted = self.sent[transfer], self.posted[transfer]
                begin, after = arrival, (sent if sent[0] >= posted[0] else posted)[1]
        self.start[task], self.after[task] = begin, after
        self.end[task] = self.clock[rank] = begin + self.took[task]
        self.last[rank] = task
        return True


def _result(program: Program, machine: _Machine) -> Simulation:
    makespan_us = max(machine.end.values(), default=0)
    ordered = [step.number for steps in program.steps for step in steps if step.op == Op.COMPUTE]
    number = {task: i for i, task in enumerate(ordered)}
    runs: list[TaskRun] = []
    for task in ordered:
        rank, place, action = program.tasks[task]
        starts, ends = _bytes(program, task)
        after = machine.after[task]
        runs.append(
            TaskRun(
                rank=rank,
                action=place,
                kind=action.kind,
                module=action.module,
                chunk=action.chunk,
                sub_microbatch=action.sub_microbatch,
                start_us=machine.start[task],
                end_us=machine.end[task],
                starts_bytes=starts,
                ends_bytes=ends,
                after=number[after] if after != _UNKNOWN else _UNKNOWN,
            )
        )
    of_rank: list[list[TaskRun]] = [[] for _ in program.steps]
    for run in runs:
        of_rank[run.rank].append(run)
    uses = tuple(_use(program, rank, on_rank, makespan_us) for rank, on_rank in enumerate(of_rank))
    return Simulation(makespan_us=makespan_us, ranks=uses, tasks=tuple(runs))


def _bytes(program: Program, task: int) -> tuple[int, int]:
    """Bytes that a rank comes to hold when a task starts, and when it ends."""
    work, n = program.work, program.work.num_cells
    cell = task % n
    if not work.has_backward(cell):
        return 0, 0
    cost = work.cost(cell, program.ways[cell])
    if task < n:
        return cost.kept_bytes, 0
    if not program.split(cell):
        return 0, -cost.kept_bytes
    if task >= 2 * n:
        return 0, -cost.split_kept_bytes
    ends = -cost.split_kept_bytes if work.module_of(cell).frozen else 0
    return cost.split_kept_bytes - cost.kept_bytes, ends


def _use(program: Program, rank: int, runs: Sequence[TaskRun], makespan_us: int) -> RankUse:
    """Add up a rank's times and bytes.

    Raises
    ------
    OverMemoryError
        At the first task with which the rank holds too much.
    """
    static = held = peak = program.work.static_bytes[rank]
    limit = program.work.job.memory_bytes[rank]
    if limit and static > limit:
        raise OverMemoryError(rank=rank, action=None, held_bytes=static, limit_bytes=limit)
    busy = waiting = free = 0
    for run in runs:
        held += run.starts_bytes
        if limit and held > limit:
            raise OverMemoryError(rank=rank, action=run.action, held_bytes=held, limit_bytes=limit)
        peak = max(peak, held)
        held += run.ends_bytes
        busy += run.end_us - run.start_us
        waiting += run.start_us - free
        free = run.end_us
    return RankUse(
        rank=rank,
        busy_us=busy,
        waiting_us=waiting,
        idle_us=makespan_us - busy,
        static_bytes=static,
        peak_bytes=peak,
    )
