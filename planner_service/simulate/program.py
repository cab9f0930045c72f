"""A plan read into what a machine needs: for each rank its steps, and for each task what it waits for and takes.

Tasks are numbered by phase: the forward of cell ``c`` is task ``c``, its whole backward or its input half ``n + c``,
its weight half ``2n + c``, where ``n`` is the number of cells. Transfers are numbered by edge: the activation along
edge ``e`` is transfer ``e``, the gradient that returns along it ``m + e``, where ``m`` is the number of edges.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from dip.planner.v1 import planner_pb2 as pb

from planner_service.simulate.errors import MissingTransferError, WaitsForItselfError

if TYPE_CHECKING:
    from dip.memory import Way
    from dip.work import Work


class Op(IntEnum):
    """What a step does."""

    COMPUTE = 0
    SEND = 1
    RECEIVE = 2


class Step(NamedTuple):
    """One action of a rank: the number of its task or transfer, and the action's place."""

    op: Op
    number: int
    action: int


class Placed(NamedTuple):
    """A task where a plan runs it; the action's place is in its rank's schedule."""

    rank: int
    action: int
    message: pb.Action


@dataclass(kw_only=True, slots=True)
class Program:
    """What a plan runs.

    Parameters
    ----------
    work
        The stage tasks.
    steps
        For each rank.
    tasks
        By number.
    sends, receives
        Rank and action by number of the transfer.
    ways
        For each cell, how its layers run.
    local_needs, remote_needs
        For each task the tasks of its own rank, and the transfers, that it waits for.
    """

    work: Work
    steps: list[list[Step]]
    tasks: dict[int, Placed] = field(default_factory=dict)
    sends: dict[int, Placed] = field(default_factory=dict)
    receives: dict[int, Placed] = field(default_factory=dict)
    ways: list[Way] = field(init=False)
    local_needs: dict[int, list[int]] = field(init=False)
    remote_needs: dict[int, list[int]] = field(init=False)

    def split(self, cell: int) -> bool:
        """Whether a cell's backward runs in halves."""
        placed = self.tasks.get(self.work.num_cells + cell)
        return placed is not None and placed.message.kind == pb.ACTION_KIND_BACKWARD_INPUT


def task_needs(program: Program) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """For each task the tasks of its rank and the transfers that it waits for; both sides of each are there."""
    work, n, edges = program.work, program.work.num_cells, program.work.edges
    local: dict[int, list[int]] = {task: [] for task in program.tasks}
    remote: dict[int, list[int]] = {task: [] for task in program.tasks}
    for cell in range(n):
        if n + cell in local:
            local[n + cell].append(cell)
        if 2 * n + cell in local:
            local[2 * n + cell].append(n + cell)
    for e, edge in enumerate(edges):
        waits = [(e, edge.producer, edge.consumer)]
        if work.has_backward(edge.producer):
            waits.append((len(edges) + e, n + edge.consumer, n + edge.producer))
        for transfer, earlier, later in waits:
            if edge.crosses:
                _check_transfer(program, transfer, earlier, later)
                remote[later].append(transfer)
            else:
                local[later].append(earlier)
    return local, remote


def _check_transfer(program: Program, transfer: int, earlier: int, later: int) -> None:
    made, used = program.tasks[earlier], program.tasks[later]
    sent = program.sends.get(transfer)
    if sent is None:
        raise MissingTransferError(
            f"what it makes for rank {used.rank} is never sent", rank=made.rank, action=made.action
        )
    if transfer not in program.receives:
        raise MissingTransferError(
            f"what it needs of rank {made.rank} is never received", rank=used.rank, action=used.action
        )
    if sent.action < made.action:
        raise WaitsForItselfError(f"sends what action {made.action} makes", rank=sent.rank, action=sent.action)
