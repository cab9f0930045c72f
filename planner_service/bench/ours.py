"""Our plans, as a user gets them: partition and sub-microbatches chosen, order and memory searched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dip.errors import CannotFitError

from planner_service.bench.case import GIVEN
from planner_service.bench.judge import misfit_row, plan_row
from planner_service.bench.spent import Spent, spend
from planner_service.planning import make_plan

if TYPE_CHECKING:
    from dip.planner.v1 import planner_pb2 as pb

    from planner_service.bench.case import Case, Row
    from planner_service.bench.settings import Settings

OURS, OURS_WHOLE = "ours", "ours-whole"
"""With backwards split where that is better; with whole ones."""

PLAN_OVERHEAD_S, PARTITION_SHARE = 0.6, 1.5
"""What a plan takes besides the search: building and judging it; the partition, as a share of the search time."""


def plan_seconds(settings: Settings, *, share: float = 1.0) -> float:
    """Expected time of one plan and its partition."""
    return PLAN_OVERHEAD_S + share * settings.budget_ms / 1000 * (1 + PARTITION_SHARE)


def our_plan(request: pb.PlanRequest, settings: Settings, *, seed: int, cp_sat: bool = True) -> tuple[pb.Plan, Spent]:
    """Plan a batch, and measure what it took.

    Raises
    ------
    CannotFitError
        If it does not fit.
    """
    return spend(
        lambda: make_plan(request, budget_ms=settings.budget_ms, seed=seed, cores=settings.cores, cp_sat=cp_sat)
    )


def our_row(
    case: Case, request: pb.PlanRequest, settings: Settings, *, method: str, memory: str = GIVEN
) -> tuple[Row, pb.Plan | None, Spent]:
    """Plan and judge; no plan where it does not fit."""
    try:
        plan, spent = our_plan(request, settings, seed=case.seed)
    except CannotFitError as error:
        return misfit_row(case, error, method=method, memory=memory), None, Spent(0, 0)
    return plan_row(case, request, plan, spent, method=method, memory=memory), plan, spent
