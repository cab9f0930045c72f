"""The short table that people read of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dip.planner.v1 import planner_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterator

_COMPUTE = frozenset(
    (
        pb.ACTION_KIND_FORWARD,
        pb.ACTION_KIND_BACKWARD,
        pb.ACTION_KIND_BACKWARD_INPUT,
        pb.ACTION_KIND_BACKWARD_WEIGHT,
    )
)
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def plan_table(request: pb.PlanRequest, plan: pb.Plan) -> str:
    """Lay out a plan's figures, then a line for each rank, then one for each step of the search."""
    return "\n".join((*_summary(plan), "", *_ranks(request, plan), *_steps(plan)))


def readable_bytes(size: int) -> str:
    """Three digits and a unit: 999 B, 1.50 MB, 73.6 GB."""
    value, unit = float(size), 0
    while value >= 999.5 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    decimals = 0 if unit == 0 or value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{decimals}f} {_UNITS[unit]}"


def _summary(plan: pb.Plan) -> Iterator[str]:
    makespan, bound = plan.makespan_us, plan.lower_bound_us
    proven = " (proven optimal)" if plan.search.optimal else ""
    gap = f"{makespan / bound - 1:.2%}" if bound else "none"
    num_tasks = sum(action.kind in _COMPUTE for schedule in plan.ranks for action in schedule.actions)
    yield f"makespan     {makespan:>15,} us" + (" (the fixed fallback)" if plan.fallback else "")
    yield f"lower bound  {bound:>15,} us"
    yield f"gap          {gap:>15}{proven}"
    yield f"tasks        {num_tasks:>15,} of {len(plan.sub_microbatches):,} sub-microbatches"


def _ranks(request: pb.PlanRequest, plan: pb.Plan) -> Iterator[str]:
    allowed = list(request.job.cluster.memory_bytes)
    limits = allowed * len(plan.ranks) if len(allowed) == 1 else allowed or [0] * len(plan.ranks)
    yield f"{'rank':>4}  {'load':>6}  {'peak memory':>11}  {'allowed':>8}"
    for schedule in plan.ranks:
        busy = sum(action.end_us - action.start_us for action in schedule.actions if action.kind in _COMPUTE)
        load = f"{busy / plan.makespan_us:.1%}" if plan.makespan_us else "-"
        limit = readable_bytes(limits[schedule.rank]) if limits[schedule.rank] else "no limit"
        yield f"{schedule.rank:>4}  {load:>6}  {readable_bytes(schedule.peak_memory_bytes):>11}  {limit:>8}"


def _steps(plan: pb.Plan) -> Iterator[str]:
    search = plan.search
    if not search.steps:
        return
    yield ""
    yield f"search: {search.elapsed_ms:,} ms, {search.evaluations:,} schedules tried"
    width = max(len("engine"), *(len(step.engine) for step in search.steps))
    yield f"{'engine':<{width}}  {'after':>9}  {'makespan':>18}"
    for step in search.steps:
        yield f"{step.engine:<{width}}  {step.elapsed_ms:>6,} ms  {step.makespan_us:>15,} us"
