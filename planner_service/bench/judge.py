"""What a plan is worth: run in virtual time, and checked against its request. The same for ours and for all others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner_service.bench.flops import utilisation
from planner_service.check import check_plan
from planner_service.simulate import SimulationError, simulate

if TYPE_CHECKING:
    from dip.errors import CannotFitError
    from dip.planner.v1 import planner_pb2 as pb

    from planner_service.bench.case import Case, Row
    from planner_service.bench.spent import Spent

SHOWN_FAULTS = 3


def plan_row(
    case: Case,
    request: pb.PlanRequest,
    plan: pb.Plan,
    spent: Spent,
    *,
    method: str,
    memory: str,
) -> Row:
    """Judge a plan.

    Parameters
    ----------
    case
        What it belongs to.
    request
        What it answers.
    plan
        The plan.
    spent
        What making it took.
    method, memory
        Who made it, under which limits.

    Returns
    -------
    Row
        ``makespan_us`` is the simulator's. ``fault`` is empty, or says what is wrong with the plan.
    """
    checked = check_plan(request, plan)
    faults = list(checked.faults)
    makespan_us, peak_bytes = plan.makespan_us, 0
    try:
        ran = simulate(request, plan)
    except SimulationError as error:
        faults.insert(0, f"the simulator cannot run it: {error}")
    else:
        makespan_us, peak_bytes = ran.makespan_us, max(ran.peak_bytes)
        if makespan_us != plan.makespan_us:
            faults.append(f"the plan states a makespan of {plan.makespan_us} us, the simulator takes {makespan_us}")
    figures = checked.figures
    return case.row(
        memory=memory,
        method=method,
        fits=True,
        makespan_us=makespan_us,
        bound_us=plan.lower_bound_us,
        gap=figures.gap if figures else None,
        over_ideal=figures.over_ideal if figures else None,
        peak_bytes=peak_bytes,
        tasks=figures.tasks if figures else 0,
        mfu=utilisation(case.config, request.batch, makespan_us, len(plan.ranks)),
        cpu_ms=spent.cpu_ms,
        wall_ms=spent.wall_ms,
        fault="; ".join(faults[:SHOWN_FAULTS]),
    )


def misfit_row(case: Case, error: CannotFitError, *, method: str, memory: str) -> Row:
    """Row of a method that has no plan that fits the memory."""
    return case.row(memory=memory, method=method, fits=False, why=str(error), fault="")
