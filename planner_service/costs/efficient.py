"""The smallest sub-microbatch that a module runs efficiently: smaller ones lose time to launches and to traffic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dip.chunk_costs import layers_cost
from dip.costs import STORE

if TYPE_CHECKING:
    from collections.abc import Callable

    from dip.job import Module
    from dip.planner.v1 import planner_pb2 as pb

KEPT_SHARE = 0.95
"""Share of the best throughput that an efficient size keeps: the paper's rule for sub-microbatches."""


def efficient_units(message: pb.Module, module: Module, *, instance_units: float, backward: bool) -> int:
    """Find the smallest size that keeps 95% of the best throughput at any size from 1 to the largest cost point.

    Parameters
    ----------
    message, module
        The module, as the job has it and looked up.
    instance_units
        Size of the instances that a sub-microbatch is made of: the sum of their squares over their sum.
    backward
        Whether the backward counts.
    """

    def time_each(units: int) -> float:
        squares = round(units * instance_units)
        cost = layers_cost(module, 0, ((STORE, module.num_layers),), units=units, squares=squares)
        time = cost.forward_us
        if backward and module.trains:
            time += cost.backward_input_us + (0.0 if module.frozen else cost.backward_weight_us)
        return time / units

    sizes = sorted({1} | {point.units for run in message.layers for point in run.cost.points})
    allowed = min(map(time_each, sizes)) / KEPT_SHARE
    # Between two of the sizes time is a line, so that the time for each unit falls or rises all the way.
    i = next(i for i, size in enumerate(sizes) if time_each(size) <= allowed)
    return _first(sizes[i - 1] if i else 0, sizes[i], lambda units: time_each(units) <= allowed)


def _first(low: int, high: int, good: Callable[[int], bool]) -> int:
    """Bisect for the first good size above ``low``, which is not good; ``high`` is."""
    while high - low > 1:
        middle = (low + high) // 2
        if good(middle):
            high = middle
        else:
            low = middle
    return high
