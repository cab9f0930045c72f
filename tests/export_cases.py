"""A plan with several modules and transfers, and reports as if its ranks had run it."""

from __future__ import annotations

import cases
from dip.fallback import fallback_plan
from dip.partition import default_partition
from dip.planner.v1 import planner_pb2 as pb

COMPUTE = frozenset((pb.ACTION_KIND_FORWARD, pb.ACTION_KIND_BACKWARD))


def planned_request() -> tuple[pb.PlanRequest, pb.Plan]:
    """Four microbatches of two modules on four ranks."""
    request = cases.request(cases.job(ranks=4), cases.documents(4))
    return request, fallback_plan(request.job, default_partition(request.job, request.batch), request.batch)


def reports_of(plan: pb.Plan, late_us: int = 0) -> list[pb.ReportExecutionRequest]:
    """What every rank would report had all its compute run as planned, or a bit later."""
    reports = []
    for schedule in plan.ranks:
        report = pb.ReportExecutionRequest(rank=schedule.rank, iteration=7, plan_digest=plan.digest)
        for action in schedule.actions:
            if action.kind in COMPUTE:
                made = report.actions.add()
                made.CopyFrom(action)
                made.start_us, made.end_us = action.start_us + late_us, action.end_us + late_us
        reports.append(report)
    return reports
