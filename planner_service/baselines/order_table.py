"""An order of stages as data: what each rank runs, whoever wrote the rule, be it ours or a class of PyTorch's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from dip.lowering import Phase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dip.lowering import Task
    from dip.work import Work


class Step(NamedTuple):
    """One pass of one microbatch through one stage."""

    phase: Phase
    stage: int
    microbatch: int


@dataclass(frozen=True, kw_only=True, slots=True)
class OrderTable:
    """What each rank runs, in order.

    Parameters
    ----------
    placement
        Rank of each stage.
    steps
        For each rank, its steps.
    """

    placement: tuple[int, ...]
    steps: tuple[tuple[Step, ...], ...]


TableMaker = Callable[[int, int], OrderTable]
"""The order for a number of ranks and of microbatches, both at least 1."""


def table_orders(work: Work, stage_of: Sequence[Sequence[int]], make_table: TableMaker) -> list[list[Task]]:
    """Order of the tasks of each rank when its stages run in the order of a table.

    What a stage holds of several modules runs back to back, in the order of the model; a backward in reverse. A step
    for which there is no work, or no backward, is left out.

    Parameters
    ----------
    work
        Stage tasks of whole microbatches.
    stage_of
        For each module, the stage of each of its chunks; empty for one that is left out.
    make_table
        The order. Microbatches without any work are not counted.
    """
    cells: dict[tuple[int, int], list[int]] = defaultdict(list)
    for cell, p in enumerate(work.cell_part):
        chunk = work.cell_chunk[cell]
        if stage_of[chunk.module]:
            cells[work.parts[p].microbatch, stage_of[chunk.module][chunk.index]].append(cell)
    microbatches = sorted({part.microbatch for part in work.parts})
    if not microbatches:
        return [[] for _ in range(work.job.ranks)]
    table = make_table(work.job.ranks, len(microbatches))
    return [
        [task for step in steps for task in _tasks(work, step.phase, cells[microbatches[step.microbatch], step.stage])]
        for steps in table.steps
    ]


def _tasks(work: Work, phase: Phase, cells: Sequence[int]) -> list[Task]:
    if phase == Phase.FORWARD:
        return [(phase, cell) for cell in cells]
    backwards = [cell for cell in reversed(cells) if work.has_backward(cell)]
    if phase == Phase.BACKWARD_WEIGHT:
        backwards = [cell for cell in backwards if not work.module_of(cell).frozen]
    return [(phase, cell) for cell in backwards]
