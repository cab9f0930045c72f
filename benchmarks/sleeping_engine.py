"""A solving module that sleeps for its budget: a solver with a core of its own, on a machine that has none to spare.

Workers import it by name in place of the real engine. Its plans are complete and valid: the fixed schedule, made once
for each batch in each process, so that what is measured is the service around it.
"""

from __future__ import annotations

import time
from functools import lru_cache
from typing import TYPE_CHECKING

from dip.fallback import fallback_plan
from dip.partition import default_partition
from dip.planner.v1 import planner_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["default_partition", "fallback_plan", "make_partition", "make_plan", "warm_up"]

_PLANS_REMEMBERED = 64


def warm_up() -> None:
    """Nothing here is compiled."""


def make_partition(spec: pb.JobSpec, batch: pb.Batch | None, *, budget_ms: int) -> pb.Partition:
    """Make the partition that needs no search."""
    return default_partition(spec, batch)


def make_plan(
    request: pb.PlanRequest,
    *,
    budget_ms: int | None,
    cores: int = 1,
    on_plan: Callable[[pb.Plan], None] | None = None,
) -> pb.Plan:
    """Return the fixed schedule, marked as searched, once the budget is over; making it counts."""
    began_s = time.monotonic()
    plan = _plan(request.SerializeToString(deterministic=True))
    time.sleep(max(0.0, began_s + (budget_ms or 0) / 1000 - time.monotonic()))
    return plan


@lru_cache(maxsize=_PLANS_REMEMBERED)
def _plan(request: bytes) -> pb.Plan:
    asked = pb.PlanRequest.FromString(request)
    partition = asked.partition if asked.partition.chunks else default_partition(asked.job, asked.batch)
    plan = fallback_plan(asked.job, partition, asked.batch)
    plan.fallback = False
    plan.search.steps.add(elapsed_ms=1, engine="sleeping", makespan_us=plan.makespan_us)
    return plan
