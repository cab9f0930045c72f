"""Solver processes beside the event loop: killable, bounded in time and memory, at idle priority."""

from planner_service.pool.budgets import budget_within_ms, choose_budget_ms, solve_limit_s
from planner_service.pool.cores import default_workers, usable_cores
from planner_service.pool.messages import PartitionTask, PlanTask, SplitPlan
from planner_service.pool.pool import SolverPool
from planner_service.pool.solve import Cancelled, Failed, Partitioned, Planned, Refused, Solve

__all__ = [
    "Cancelled",
    "Failed",
    "PartitionTask",
    "Partitioned",
    "PlanTask",
    "Planned",
    "Refused",
    "Solve",
    "SolverPool",
    "SplitPlan",
    "budget_within_ms",
    "choose_budget_ms",
    "default_workers",
    "solve_limit_s",
    "usable_cores",
]
