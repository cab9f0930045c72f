"""Reads a plan's schedules into a program; what does not belong, or is missing, is an error with its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dip.costs import STORE
from dip.planner.v1 import planner_pb2 as pb

from planner_service.simulate.errors import BrokenActionError, MissingTaskError, SimulationError
from planner_service.simulate.program import Op, Placed, Program, Step, task_needs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dip.memory import Way
    from dip.work import Work

_FORWARD = pb.ACTION_KIND_FORWARD
_WHOLE = pb.ACTION_KIND_BACKWARD
_INPUT = pb.ACTION_KIND_BACKWARD_INPUT
_WEIGHT = pb.ACTION_KIND_BACKWARD_WEIGHT
_LAYER_OF_TASKS = {_FORWARD: 0, _WHOLE: 1, _INPUT: 1, _WEIGHT: 2}
_SENDS = pb.ACTION_KIND_SEND_ACTIVATION, pb.ACTION_KIND_SEND_GRADIENT
_GRADIENTS = pb.ACTION_KIND_SEND_GRADIENT, pb.ACTION_KIND_RECV_GRADIENT
_TRANSFERS = frozenset((*_SENDS, pb.ACTION_KIND_RECV_ACTIVATION, pb.ACTION_KIND_RECV_GRADIENT))


def read_program(work: Work, places: dict[int, int], ranks: Sequence[pb.RankSchedule]) -> Program:
    """Read a plan's schedules.

    Parameters
    ----------
    work, places
        The stage tasks, and the part that each sub-microbatch is.
    ranks
        The plan's.

    Raises
    ------
    SimulationError
        If an action does not belong, or a task or a transfer is missing.
    """
    if sorted(schedule.rank for schedule in ranks) != list(range(work.job.ranks)):
        raise SimulationError(
            f"schedules of ranks {[s.rank for s in ranks]}, not of 0 to {work.job.ranks - 1} each once"
        )
    reader = _Reader(work, places)
    for schedule in ranks:
        reader.read(schedule)
    program = reader.program
    _check_complete(program)
    program.ways = [_way_of(program, cell) for cell in range(work.num_cells)]
    program.local_needs, program.remote_needs = task_needs(program)
    return program


class _Reader:
    """Turns actions into steps."""

    def __init__(self, work: Work, places: dict[int, int]) -> None:
        self.work, self.places = work, places
        self.program = Program(work=work, steps=[[] for _ in range(work.job.ranks)])
        self.edge_of = {(edge.producer, edge.consumer): e for e, edge in enumerate(work.edges)}
        self.names = [module.name for module in work.job.modules]

    def read(self, schedule: pb.RankSchedule) -> None:
        """Read one rank."""
        rank, steps = schedule.rank, self.program.steps[schedule.rank]
        for place, action in enumerate(schedule.actions):
            if action.kind in _TRANSFERS:
                steps.append(self._transfer(rank, place, action))
            else:
                steps.append(self._task(rank, place, action))

    def _cell(self, rank: int, place: int, sub: int, module: str, chunk: int) -> int:
        part = self.places.get(sub)
        if part is None:
            raise BrokenActionError(f"there is no sub-microbatch {sub}", rank=rank, action=place)
        module_index = self.work.parts[part].module
        if self.names[module_index] != module or not 0 <= chunk < len(self.work.chunks[module_index]):
            what = f"sub-microbatch {sub} has no chunk {chunk} of module {module!r}"
            raise BrokenActionError(what, rank=rank, action=place)
        return self.work.first_cell[part] + chunk

    def _task(self, rank: int, place: int, action: pb.Action) -> Step:
        work = self.work
        cell = self._cell(rank, place, action.sub_microbatch, action.module, action.chunk)
        layer = _LAYER_OF_TASKS.get(action.kind)
        if layer is None or work.cell_chunk[cell].rank != rank:
            what = f"kind {action.kind} of chunk {action.chunk} of {action.module!r} does not belong on this rank"
            raise BrokenActionError(what, rank=rank, action=place)
        halves = action.kind in (_INPUT, _WEIGHT)
        if (layer and not work.has_backward(cell)) or (halves and not work.job.split_backward):
            raise BrokenActionError("a backward that the job does not have", rank=rank, action=place)
        if action.kind == _WEIGHT and work.module_of(cell).frozen:
            raise BrokenActionError("a frozen module has no weight half", rank=rank, action=place)
        task = layer * work.num_cells + cell
        if task in self.program.tasks:
            raise BrokenActionError("the same task for a second time", rank=rank, action=place)
        self.program.tasks[task] = Placed(rank, place, action)
        return Step(Op.COMPUTE, task, place)

    def _transfer(self, rank: int, place: int, action: pb.Action) -> Step:
        work = self.work
        source = self._cell(rank, place, action.sub_microbatch, action.module, action.chunk)
        target = self._cell(rank, place, action.consumer_sub_microbatch, action.consumer_module, action.consumer_chunk)
        back, send = action.kind in _GRADIENTS, action.kind in _SENDS
        number = self.edge_of.get((target, source) if back else (source, target))
        ends = work.cell_chunk[source].rank, work.cell_chunk[target].rank
        needed = number is not None and ends[0] != ends[1] and (not back or work.has_backward(target))
        if number is None or not needed:
            raise BrokenActionError("a transfer that nothing needs", rank=rank, action=place)
        if (rank, action.peer) != (ends if send else ends[::-1]):
            what = f"a transfer with rank {action.peer}; it goes from rank {ends[0]} to rank {ends[1]}"
            raise BrokenActionError(what, rank=rank, action=place)
        number += len(work.edges) if back else 0
        side = self.program.sends if send else self.program.receives
        if number in side:
            raise BrokenActionError("the same transfer for a second time", rank=rank, action=place)
        side[number] = Placed(rank, place, action)
        return Step(Op.SEND if send else Op.RECEIVE, number, place)


def _check_complete(program: Program) -> None:
    """Check that all work is done, and each backward either whole or in both halves."""
    work, n = program.work, program.work.num_cells
    for cell in range(n):
        whole = work.has_backward(cell) and not program.split(cell)
        wanted = [cell] + ([n + cell] if work.has_backward(cell) else [])
        if program.split(cell) and not work.module_of(cell).frozen:
            wanted.append(2 * n + cell)
        for task in wanted:
            if task not in program.tasks:
                chunk, sub = work.cell_chunk[cell], work.cell_part[cell]
                what = ("forward", "backward", "weight half")[task // n]
                name = work.module_of(cell).name
                raise MissingTaskError(
                    f"the {what} of sub-microbatch {sub} on chunk {chunk.index} of {name!r} is missing", rank=chunk.rank
                )
        weight = program.tasks.get(2 * n + cell)
        if whole and weight is not None:
            what = "a weight half of a backward that is whole"
            raise BrokenActionError(what, rank=weight.rank, action=weight.action)


def _way_of(program: Program, cell: int) -> Way:
    """Read how a cell's layers run: the same in its forward and what gives its gradient."""
    found: list[Way] = []
    for task in (cell, program.work.num_cells + cell):
        placed = program.tasks.get(task)
        if placed is None:
            continue
        layers = program.work.cell_chunk[cell].num_layers
        found.append(_merged(placed.message.strategies) or ((STORE, layers),))
        covered = sum(count for _, count in found[-1])
        if covered != layers:
            raise BrokenActionError(
                f"strategies for {covered} layers of {layers}", rank=placed.rank, action=placed.action
            )
        try:
            program.work.cost(cell, found[-1])
        except ValueError as error:
            raise BrokenActionError(str(error), rank=placed.rank, action=placed.action) from error
        if found[-1] != found[0]:
            what = f"strategies {found[-1]}, those of the forward are {found[0]}"
            raise BrokenActionError(what, rank=placed.rank, action=placed.action)
    return found[0]


def _merged(runs: Sequence[pb.StrategyRun]) -> Way:
    """Read strategies, neighbours of the same name as one."""
    merged: list[tuple[str, int]] = []
    for run in runs:
        if run.num_layers <= 0:
            continue
        if merged and merged[-1][0] == run.name:
            merged[-1] = run.name, merged[-1][1] + run.num_layers
        else:
            merged.append((run.name, run.num_layers))
    return tuple(merged)
