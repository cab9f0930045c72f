"""The schedules that users have today, on the same stage tasks as ours."""

from planner_service.baselines.latency_balanced import latency_balanced_partition
from planner_service.baselines.one_f_one_b import one_f_one_b

__all__ = ["latency_balanced_partition", "one_f_one_b"]
