"""Ways to run a layer that keep less: run its forward again, or move what it keeps to the host and back."""

from __future__ import annotations

import math

from dip.planner.v1 import planner_pb2 as pb


def recompute(cost: pb.LayerCost, *, input_bytes: float) -> pb.MemoryStrategy:
    """Keep the input alone; the backward starts with the forward once more, and then holds everything.

    Parameters
    ----------
    cost
        Cost of the layer when it stores.
    input_bytes
        Size of its input for each unit.
    """
    made = pb.MemoryStrategy(name="recompute", attention=cost.attention)
    made.attention.backward_input_us += cost.attention.forward_us
    for stored in cost.points:
        point = _lean(stored, math.ceil(input_bytes * stored.units))
        point.backward_input_us = round(stored.backward_input_us + stored.forward_us, 3)
        made.points.append(point)
    return made


def offload(cost: pb.LayerCost, *, host_bytes: float, overlap: float, split_backward: bool) -> pb.MemoryStrategy:
    """Move what the layer keeps to its host during its forward, and back during its backward.

    The copy of one layer runs under the work of one layer, both ways at once where forwards and backwards alternate:
    what of it the work cannot hide is added. What hides a copy is the linear part of the work alone. Where the squared
    part of attention would hide it as well, the time is too long by at most that part: the contract's sum of a line
    and a square cannot say "the longer of both". Where backwards may be split, the input half alone hides the copy,
    and everything is held again from then on until the weight half ends.

    Parameters
    ----------
    cost
        Cost of the layer when it stores.
    host_bytes
        Bytes that a copy moves in a microsecond, in either direction.
    overlap
        Share of the work under which a copy can run.
    split_backward
        Whether the backward may run in two halves.
    """
    made = pb.MemoryStrategy(name="offload", attention=cost.attention)
    for stored in cost.points:
        copy_us = stored.activation_bytes / host_bytes
        backward_us = stored.backward_input_us + (0.0 if split_backward else stored.backward_weight_us)
        point = _lean(stored, 0)
        point.forward_us = round(stored.forward_us + max(0.0, copy_us - overlap * stored.forward_us), 3)
        point.backward_input_us = round(stored.backward_input_us + max(0.0, copy_us - overlap * backward_us), 3)
        made.points.append(point)
    return made


def _lean(stored: pb.CostPoint, kept: int) -> pb.CostPoint:
    point = pb.CostPoint()
    point.CopyFrom(stored)
    point.activation_bytes = kept
    point.split_activation_bytes = stored.activation_bytes
    return point
