"""What workers solve with. Imported in workers only: these modules are heavy.

A pool can be given another module of the same three names, which is how tests inject faults.
"""

from dip.fallback import fallback_plan

from planner_service.planning import make_partition, make_plan

__all__ = ["fallback_plan", "make_partition", "make_plan"]
