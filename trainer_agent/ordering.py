"""What the contract promises about the order of a rank's actions, checked before the first of them runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_agent.errors import PlanError
from trainer_agent.program import ComputeStep, TransferStep

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trainer_agent.program import Cell, CellPlan, Edge, Parcel, Step

Task = tuple[bool, "Cell"]
"""A cell's forward (False) or backward (True)."""


def check_steps(rank: int, steps: Sequence[Step], cells: Iterable[CellPlan], edges: Iterable[Edge]) -> None:
    """Check that a rank's steps are all that it must do, each once, none before what it needs.

    Rules: each forward and each needed backward stands there once; each transfer that starts or ends here stands there
    once; a send stands right after its producer, before the rank's next compute; a receive stands before its consumer;
    compute stands after what it needs of its own rank.

    Raises
    ------
    PlanError
        A rule is broken; names the step and its position.
    """
    cells, edges = tuple(cells), tuple(edges)
    tasks, parcels = _places(rank, steps)
    for work in cells:
        for backward in (False, True) if work.has_backward else (False,):
            if (backward, work.cell) not in tasks:
                raise PlanError(rank=rank, fault=f"no {'backward' if backward else 'forward'} of {work.cell}")
    needed = sum(1 + work.has_backward for work in cells)
    if len(tasks) != needed:
        raise PlanError(rank=rank, fault=f"{len(tasks)} compute actions, {needed} are needed")
    for edge in edges:
        _check_edge(rank, edge, tasks, parcels)
    for work in cells:
        if work.has_backward and tasks[True, work.cell] < tasks[False, work.cell]:
            raise PlanError(rank=rank, fault=f"the backward of {work.cell} stands before its forward")
    _check_sends(rank, steps)


def _places(rank: int, steps: Sequence[Step]) -> tuple[dict[Task, int], dict[Parcel, int]]:
    """Position of each compute and of each transfer."""
    tasks: dict[Task, int] = {}
    parcels: dict[Parcel, int] = {}
    for position, step in enumerate(steps):
        if isinstance(step, ComputeStep):
            first = tasks.setdefault((step.backward, step.work.cell), position)
        else:
            first = parcels.setdefault(step.parcel, position)
        if first != position:
            raise PlanError(rank=rank, fault=f"action {position}, {step}: stands at {first} already")
    return tasks, parcels


def _check_edge(rank: int, edge: Edge, tasks: dict[Task, int], parcels: dict[Parcel, int]) -> None:
    """Check both directions of an edge: transfers are there, and what takes from it stands after what gives."""
    travels = [(edge.activation, edge.producer_rank)]
    if edge.has_gradient:
        travels.append((edge.gradient, edge.consumer_rank))
    for parcel, source_rank in travels:
        source, target = (parcel.gradient, parcel.source), (parcel.gradient, parcel.target)
        if edge.crosses:
            if parcel not in parcels:
                raise PlanError(rank=rank, fault=f"no transfer of the {parcel}")
            if source_rank != rank and tasks[target] < parcels[parcel]:
                raise PlanError(rank=rank, fault=f"the {parcel} is received after it is needed")
        elif tasks[target] < tasks[source]:
            raise PlanError(rank=rank, fault=f"the {parcel} is needed at action {tasks[target]}, before it is made")


def _check_sends(rank: int, steps: Sequence[Step]) -> None:
    """Check that the compute before each send is the one that made what it sends."""
    last: Task | None = None
    for position, step in enumerate(steps):
        if isinstance(step, ComputeStep):
            last = step.backward, step.work.cell
        elif isinstance(step, TransferStep) and step.sends and last != (step.parcel.gradient, step.parcel.source):
            raise PlanError(rank=rank, fault=f"action {position}, {step}: does not stand right after what makes it")
