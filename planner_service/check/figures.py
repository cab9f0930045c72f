"""Rules of what a plan says about itself: makespan, bound and digest; and the figures that a reader wants."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dip.digests import plan_digest

from planner_service.check.costs import STORE, chunk_cost
from planner_service.check.result import Figures

if TYPE_CHECKING:
    from dip.planner.v1 import planner_pb2 as pb

    from planner_service.check.facts import Facts
    from planner_service.check.tasks import Schedules

DIGEST_BYTES = 32


def check_figures(
    facts: Facts, plan: pb.Plan, schedules: Schedules, peaks: tuple[int, ...], faults: list[str]
) -> Figures:
    """Collect false statements of a plan about itself; return its figures."""
    makespan_us = max((placed.action.end_us for placed in schedules.tasks.values()), default=0)
    bound_us = plan.lower_bound_us
    if plan.makespan_us != makespan_us:
        faults.append(f"the plan states a makespan of {plan.makespan_us} us, it takes {makespan_us}")
    if not (0 < bound_us <= makespan_us or bound_us == makespan_us == 0):
        faults.append(f"the plan states a lower bound of {bound_us} us for a makespan of {makespan_us}")
    if plan.search.optimal and bound_us != makespan_us:
        faults.append("the plan is called optimal, its bound is not its makespan")
    if len(plan.digest) != DIGEST_BYTES:
        faults.append(f"the digest has {len(plan.digest)} bytes, not {DIGEST_BYTES}")
    ideal_us = _ideal_us(facts)
    return Figures(
        makespan_us=makespan_us,
        lower_bound_us=bound_us,
        gap=_above(makespan_us, bound_us),
        over_ideal=_above(makespan_us, ideal_us),
        tasks=len(schedules.tasks),
        peak_memory_bytes=peaks,
    )


def digest_warnings(plan: pb.Plan, batch: pb.Batch) -> tuple[str, ...]:
    """Return a warning where the digest is not that of the plan and its batch."""
    computed = plan_digest(plan, batch)
    if plan.digest == computed:
        return ()
    return (f"the digest is {plan.digest.hex()}, that of this plan and batch is {computed.hex()}",)


def _above(value: float, reference: float) -> float | None:
    return round(value / reference - 1, 4) if reference else None


def _ideal_us(facts: Facts) -> float:
    """Time of every microbatch whole, all layers stored, spread evenly over all ranks by their speeds."""
    work_us = 0.0
    for samples in facts.units:
        for name, module in facts.modules.items():
            sizes = [units for sample in samples for units in sample.get(name, ())]
            if not sizes:
                continue
            ways = [STORE] * len(module.layers)
            cost = chunk_cost(module.layers, ways, sum(sizes), sum(units * units for units in sizes))
            work_us += cost.forward_us
            if module.has_backward:
                work_us += cost.input_us + (cost.weight_us if module.has_weight_half else 0.0)
    return work_us / sum(facts.speed)
