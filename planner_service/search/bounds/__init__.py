"""Proven lower bounds on the makespan of any schedule of some work: whatever its order, strategies and splits."""

from planner_service.search.bounds.improved import improved_bound_us
from planner_service.search.bounds.quick import lower_bound_us

__all__ = ["improved_bound_us", "lower_bound_us"]
