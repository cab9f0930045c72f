"""The DIP paper's own method: the strongest of the baselines."""

from planner_service.baselines.paper.method import paper_plan

__all__ = ["paper_plan"]
