"""What workers solve with. Imported in workers only: these modules are heavy.

A pool can be given another module of the same names, which is how tests inject faults. Until the search's kernels are
compiled, plans are the fixed schedule; a partition, which a job keeps for good, waits for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dip.fallback import fallback_plan
from dip.partition import default_partition
from dip.validation import validate_plan_request

from planner_service import planning
from planner_service.kernel_cache import are_compiled
from planner_service.reuse import Reuse
from planner_service.warmup import compile_kernels, load_kernels

if TYPE_CHECKING:
    from collections.abc import Callable

    from dip.planner.v1 import planner_pb2 as pb

_REUSE = Reuse()
"""What this process made before."""

__all__ = ["default_partition", "fallback_plan", "make_partition", "make_plan", "warm_up"]


def warm_up() -> None:
    """Load what is compiled, so that no solve spends tenths of a second of its time on that."""
    if are_compiled():
        load_kernels()


def make_partition(spec: pb.JobSpec, batch: pb.Batch | None, *, budget_ms: int) -> pb.Partition:
    """Choose a partition by search, once kernels are compiled."""
    compile_kernels()
    return planning.make_partition(spec, batch, budget_ms=budget_ms)


def make_plan(
    request: pb.PlanRequest,
    *,
    budget_ms: int | None,
    cores: int = 1,
    on_plan: Callable[[pb.Plan], None] | None = None,
) -> pb.Plan:
    """Search a plan; the fixed schedule as long as kernels are not compiled."""
    if are_compiled():
        return planning.make_plan(request, budget_ms=budget_ms, cores=cores, reuse=_REUSE, on_plan=on_plan)
    validate_plan_request(request)
    partition = request.partition
    if not partition.chunks:
        partition = default_partition(request.job, request.batch)
    return fallback_plan(request.job, partition, request.batch)
