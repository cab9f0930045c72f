"""Durations that are not as planned: how a schedule stands what a cluster does to it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from dip.planner.v1 import planner_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Sequence

Durations = Callable[[int, pb.Action, int], int]
"""What an action really takes: of its rank, the action, and the microseconds that the costs say.

It is asked once for each compute action, and for each transfer by its send; at least 0.
"""

_COMPUTE = frozenset(
    (
        pb.ACTION_KIND_FORWARD,
        pb.ACTION_KIND_BACKWARD,
        pb.ACTION_KIND_BACKWARD_INPUT,
        pb.ACTION_KIND_BACKWARD_WEIGHT,
    )
)


def slow_ranks(factors: Sequence[float]) -> Durations:
    """Let the compute of each rank take ``factors[rank]`` times as long as planned."""

    def durations(rank: int, action: pb.Action, planned_us: int) -> int:
        return round(planned_us * factors[rank]) if action.kind in _COMPUTE else planned_us

    return durations


def lognormal_noise(sigma: float, seed: int) -> Durations:
    """Multiply every duration by a lognormal factor of median 1.

    A factor depends on the seed and on what is computed or sent alone, not on the order: two plans of one batch on one
    partition meet the same luck.

    Parameters
    ----------
    sigma
        Standard deviation of the factor's logarithm.
    seed
        Of all factors.
    """

    def durations(rank: int, action: pb.Action, planned_us: int) -> int:
        what = f"{seed} {rank} {action.kind} {action.module} {action.chunk} {action.sub_microbatch}"
        luck = random.Random(
            f"{what} {action.consumer_module} {action.consumer_chunk} {action.consumer_sub_microbatch}"
        )
        return round(planned_us * luck.lognormvariate(0.0, sigma))

    return durations
