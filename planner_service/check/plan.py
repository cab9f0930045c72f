"""Checks a plan against the request that it answers, from the contract alone.

The rules are stated here a second time on purpose: nothing is shared with the code that makes plans, so that one
mistake cannot hide another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dip.validation import validate_plan_request

from planner_service.check.cut import check_cut
from planner_service.check.durations import check_durations
from planner_service.check.facts import Facts
from planner_service.check.figures import check_figures, digest_warnings
from planner_service.check.memory import check_memory
from planner_service.check.order import check_order
from planner_service.check.partition import check_partition
from planner_service.check.progress import check_progress
from planner_service.check.result import CheckResult
from planner_service.check.tasks import check_tasks
from planner_service.check.transfers import check_transfers

if TYPE_CHECKING:
    from dip.planner.v1 import planner_pb2 as pb


def check_plan(request: pb.PlanRequest, plan: pb.Plan) -> CheckResult:
    """Find everything that a plan does against the contract.

    Parameters
    ----------
    request
        What was asked; need not be what made the plan.
    plan
        The answer. Whatever it holds, this raises nothing about it.

    Returns
    -------
    CheckResult
        No faults for a valid plan. Faults of the partition or the sub-microbatches end the check: all other rules
        build on them.

    Raises
    ------
    InvalidRequestError
        Where the request itself breaks the contract.
    """
    validate_plan_request(request)
    facts, faults = Facts.of(request), list[str]()
    warnings = digest_warnings(plan, request.batch)
    layout = check_partition(facts, plan.partition, faults)
    if faults:
        return CheckResult(faults=tuple(faults), warnings=warnings, figures=None)
    cut = check_cut(facts, plan.sub_microbatches, faults)
    if faults:
        return CheckResult(faults=tuple(faults), warnings=warnings, figures=None)
    schedules = check_tasks(facts, layout, cut, plan.ranks, faults)
    kept = check_durations(facts, layout, cut, schedules, faults)
    crossing = check_order(facts, layout, cut, schedules, faults)
    issued = check_transfers(cut, schedules, crossing, faults)
    check_progress(schedules, crossing, issued, faults)
    peaks = check_memory(facts, layout, cut, schedules, kept, plan.ranks, faults)
    figures = check_figures(facts, plan, schedules, peaks, faults)
    return CheckResult(faults=tuple(faults), warnings=warnings, figures=figures)
