"""Solver processes beside the event loop: killable, bounded in time and memory, at idle priority."""

from planner_service.pool.budgets import choose_budget_ms
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
    "choose_budget_ms",
    "default_workers",
    "usable_cores",
]
