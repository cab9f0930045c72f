"""PyTorch's own orders as baselines, taken from the schedule classes of torch.distributed.pipelining.

The classes compute the order of all ranks when they are made, for which they ask their stages for numbers alone: no
process group is needed. Two stages a rank, on the latency-balanced chain; which rank a stage lives on is the class's.
Where backwards are split and memory is limited, the same order with whole ones for layers that recompute is tried as
well, which needs less memory: what is measured is the better of the two.
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from dip.lowering import Phase
from torch.distributed.pipelining import schedules

from planner_service.baselines import Baseline
from planner_service.baselines.latency_balanced import latency_balanced
from planner_service.baselines.order_table import OrderTable, Step

if TYPE_CHECKING:
    from collections.abc import Iterator

STAGES_OF_RANK = 2

PHASES = {
    "F": Phase.FORWARD,
    "B": Phase.BACKWARD,
    "I": Phase.BACKWARD_INPUT,
    "W": Phase.BACKWARD_WEIGHT,
}
"""By the value of torch's type of a computation."""

MOST_PADDING = 64
"""Microbatches that are added at most to find a number that a class accepts."""


def torch_table(ranks: int, microbatches: int, *, schedule: type[Any]) -> OrderTable:
    """Order that a schedule class of PyTorch makes.

    Parameters
    ----------
    ranks, microbatches
        Any. Where the class refuses so few microbatches, or a number that does not divide into its rounds, its order
        for the next number that it takes is used, without what is not there: as its ZBV does by itself.
    schedule
        The class.

    Raises
    ------
    ValueError
        If the class accepts no number of microbatches.
    """
    order = _order(ranks, microbatches, schedule)
    rows = [[action for entry in order[rank] for action in _flat(entry)] for rank in range(ranks)]
    placement = [0] * (ranks * STAGES_OF_RANK)
    for rank, row in enumerate(rows):
        for action in row:
            placement[action.stage_index] = rank
    steps = tuple(
        tuple(
            Step(PHASES[action.computation_type.value], action.stage_index, action.microbatch_index)
            for action in row
            if action.microbatch_index < microbatches
        )
        for row in rows
    )
    return OrderTable(placement=tuple(placement), steps=steps)


def _order(ranks: int, microbatches: int, schedule: type[Any]) -> dict[int, list[Any]]:
    stages = [
        SimpleNamespace(
            num_stages=ranks * STAGES_OF_RANK, group_size=ranks, group_rank=0, stage_index=i, is_last=False, submod=None
        )
        for i in range(STAGES_OF_RANK)
    ]
    refused: ValueError | None = None
    for many in range(microbatches, microbatches + MOST_PADDING):
        try:
            order: dict[int, list[Any]] = schedule(stages, n_microbatches=many).pipeline_order
        except ValueError as error:
            refused = error
        else:
            return order
    raise ValueError(f"{schedule.__name__} takes no {microbatches} microbatches on {ranks} ranks") from refused


def _flat(entry: Any) -> Iterator[Any]:
    """Yield what an entry of torch's table computes: nothing, one pass, or the two of an overlapped pair in turn."""
    if entry is None:
        return
    if entry.sub_actions is None:
        yield entry
        return
    for inside in entry.sub_actions:
        yield from _flat(inside)


def _baseline(name: str, description: str, schedule: type[Any], *, splits_backward: bool) -> Baseline:
    make_table = partial(torch_table, schedule=schedule)
    return Baseline(
        name=name,
        description=f"PyTorch's {schedule.__name__.removeprefix('Schedule')} on latency-balanced stages: {description}",
        candidates=partial(latency_balanced, make_table=make_table, splits_backward=splits_backward),
        splits_backward=splits_backward,
    )


TORCH_BASELINES: dict[str, Baseline] = {
    baseline.name: baseline
    for baseline in (
        _baseline(
            "torch-interleaved-1f1b",
            "looped stages, whole backwards",
            schedules.ScheduleInterleaved1F1B,
            splits_backward=False,
        ),
        _baseline(
            "torch-interleaved-zero-bubble",
            "looped stages, split backwards",
            schedules.ScheduleInterleavedZeroBubble,
            splits_backward=True,
        ),
        _baseline(
            "torch-zbv-zero-bubble",
            "stages in a V, split backwards",
            schedules.ScheduleZBVZeroBubble,
            splits_backward=True,
        ),
        _baseline(
            "torch-dual-pipe-v",
            "stages in a V, some backwards split",
            schedules.ScheduleDualPipeV,
            splits_backward=True,
        ),
    )
}
"""By name, as ``planner_service.baselines.BASELINES``."""
