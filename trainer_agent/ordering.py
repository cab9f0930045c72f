"""What the contract promises about the order of a rank's actions, checked before the first of them runs."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from dip.lowering import Phase

from trainer_agent.errors import PlanError
from trainer_agent.program import NAMES, ComputeStep, TransferStep

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from trainer_agent.program import Cell, CellPlan, Edge, Parcel, Step

Task = tuple[Phase, "Cell"]
"""One phase of a cell."""


def check_steps(rank: int, steps: Sequence[Step], cells: Iterable[CellPlan], edges: Iterable[Edge]) -> None:
    """Check that a rank's steps are all that it must do, each once, none before what it needs.

    Rules: each phase of each cell stands there once, in order; each transfer that starts or ends here stands there
    once; a send stands right after its producer, before the rank's next compute; a receive stands before its consumer;
    compute stands after what it needs of its own rank.

    Raises
    ------
    PlanError
        A rule is broken; names the step and its position.
    """
    known, edges = {work.cell: work for work in cells}, tuple(edges)
    tasks, parcels = _places(rank, steps)
    for work in known.values():
        for phase in work.phases:
            if (phase, work.cell) not in tasks:
                raise PlanError(rank=rank, fault=f"no {NAMES[phase]} of {work.cell}")
        for earlier, later in pairwise(work.phases):
            if tasks[later, work.cell] < tasks[earlier, work.cell]:
                fault = f"the {NAMES[later]} of {work.cell} stands before its {NAMES[earlier]}"
                raise PlanError(rank=rank, fault=fault)
    needed = sum(len(work.phases) for work in known.values())
    if len(tasks) != needed:
        raise PlanError(rank=rank, fault=f"{len(tasks)} compute actions, {needed} are needed")
    for edge in edges:
        _check_edge(rank, edge, known, tasks, parcels)
    _check_sends(rank, steps, known)


def _places(rank: int, steps: Sequence[Step]) -> tuple[dict[Task, int], dict[Parcel, int]]:
    """Position of each compute and of each transfer."""
    tasks: dict[Task, int] = {}
    parcels: dict[Parcel, int] = {}
    for position, step in enumerate(steps):
        if isinstance(step, ComputeStep):
            first = tasks.setdefault((step.phase, step.work.cell), position)
        else:
            first = parcels.setdefault(step.parcel, position)
        if first != position:
            raise PlanError(rank=rank, fault=f"action {position}, {step}: stands at {first} already")
    return tasks, parcels


def _check_edge(
    rank: int, edge: Edge, known: dict[Cell, CellPlan], tasks: dict[Task, int], parcels: dict[Parcel, int]
) -> None:
    """Check both directions of an edge: transfers are there, and what takes from it stands after what gives."""
    travels = [(edge.activation, edge.producer_rank)]
    if edge.has_gradient:
        travels.append((edge.gradient, edge.consumer_rank))
    for parcel, source_rank in travels:
        if edge.crosses and parcel not in parcels:
            raise PlanError(rank=rank, fault=f"no transfer of the {parcel}")
        if edge.crosses and source_rank == rank:
            continue
        taken = tasks[known[parcel.target].exchanging(parcel), parcel.target]
        if edge.crosses and taken < parcels[parcel]:
            raise PlanError(rank=rank, fault=f"the {parcel} is received after it is needed")
        if not edge.crosses and taken < tasks[known[parcel.source].exchanging(parcel), parcel.source]:
            raise PlanError(rank=rank, fault=f"the {parcel} is needed at action {taken}, before it is made")


def _check_sends(rank: int, steps: Sequence[Step], known: dict[Cell, CellPlan]) -> None:
    """Check that the compute before each send is the one that made what it sends."""
    last: Task | None = None
    for position, step in enumerate(steps):
        if isinstance(step, ComputeStep):
            last = step.phase, step.work.cell
        elif isinstance(step, TransferStep) and step.sends:
            source = step.parcel.source
            if last != (known[source].exchanging(step.parcel), source):
                raise PlanError(rank=rank, fault=f"action {position}, {step}: does not stand right after what makes it")
