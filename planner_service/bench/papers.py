"""The paper's own method as a peer: as written, and tuned by the segments and sub-microbatches that ours chose."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from dip.errors import CannotFitError
from dip.fallback import fallback_plan

from planner_service.baselines.paper import paper_plan
from planner_service.bench.judge import misfit_row, plan_row
from planner_service.bench.spent import spend

if TYPE_CHECKING:
    from dip.planner.v1 import planner_pb2 as pb

    from planner_service.bench.case import Case, Row

AS_WRITTEN, TUNED, RANDOM = "paper", "paper-tuned", "random"


def paper_row(
    case: Case,
    request: pb.PlanRequest,
    *,
    method: str,
    memory: str,
    budget_ms: int,
    like: pb.Plan | None = None,
) -> Row:
    """Plan with the paper's method, and judge.

    Parameters
    ----------
    budget_ms
        CPU time that it may take in all: what ours took.
    like
        Plan whose partition and sub-microbatches it takes; by default it makes its own.
    """
    make = partial(
        paper_plan,
        request,
        budget_ms=budget_ms,
        seed=case.seed,
        partition=None if like is None else like.partition,
        sub_microbatches=None if like is None else like.sub_microbatches,
    )
    try:
        plan, spent = spend(make)
    except CannotFitError as error:
        return misfit_row(case, error, method=method, memory=memory)
    return plan_row(case, request, plan, spent, method=method, memory=memory)


def paper_progress(request: pb.PlanRequest, *, method: str, budget_ms: int, seed: int) -> list[tuple[int, int]]:
    """Search a request's partition, in sub-microbatches as the fixed schedule makes them.

    Parameters
    ----------
    method
        AS_WRITTEN for tree search, RANDOM for random orders through the same decoder.

    Returns
    -------
    list of (milliseconds, makespan in microseconds)
        Each improvement.
    """
    like = fallback_plan(request.job, request.partition, request.batch)
    plan = paper_plan(
        request,
        budget_ms=budget_ms,
        seed=seed,
        partition=request.partition,
        sub_microbatches=like.sub_microbatches,
        search=RANDOM if method == RANDOM else "mcts",
    )
    return [(step.elapsed_ms, step.makespan_us) for step in plan.search.steps]
