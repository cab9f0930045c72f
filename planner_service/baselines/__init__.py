"""The schedules that users have today, on the same job, batch, costs and memory as ours."""

from planner_service.baselines.baseline import Baseline
from planner_service.baselines.latency_balanced import latency_balanced_partition
from planner_service.baselines.one_f_one_b import one_f_one_b
from planner_service.baselines.providers import Registered, registered_baselines
from planner_service.baselines.registry import BASELINES

__all__ = [
    "BASELINES",
    "Baseline",
    "Registered",
    "latency_balanced_partition",
    "one_f_one_b",
    "registered_baselines",
]
