"""What workers solve with. Imported in workers only: these modules are heavy.

A pool can be given another module of the same names, which is how tests inject faults.
"""

from dip.fallback import fallback_plan
from dip.partition import default_partition

from planner_service.planning import make_partition, make_plan
from planner_service.warmup import small_request

__all__ = ["default_partition", "fallback_plan", "make_partition", "make_plan", "warm_up"]


def warm_up() -> None:
    """Plan something small, so that compiled code is made or loaded before the clock of a solve runs.

    Compiling takes seconds once on a machine, loading what was compiled tenths of a second in each process.
    """
    make_plan(small_request())
