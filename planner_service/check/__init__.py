"""A plan against its request, from the contract alone; and requests to plan."""

from planner_service.check.plan import check_plan
from planner_service.check.result import CheckResult, Figures
from planner_service.check.workload import workload_request

__all__ = ["CheckResult", "Figures", "check_plan", "workload_request"]
