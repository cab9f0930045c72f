"""What Prometheus reads of the planner: declared in `catalogue`, changed by the functions here, served by `endpoint`.

Rooms call a function where something happens; none of them knows a metric's name.
"""

from planner_service.metrics.calls import ByteMetrics, CallMetrics, schedule_sent, stream_ended, stream_opened
from planner_service.metrics.certificates import certificate_is_valid
from planner_service.metrics.endpoint import MetricsEndpoint
from planner_service.metrics.event_loop import watch_event_loop
from planner_service.metrics.jobs import JOBS
from planner_service.metrics.planning import OutcomeKind, batch_settled, batches_late, plan_found, solve_ended
from planner_service.metrics.solvers import (
    pool_closed,
    pool_opened,
    worker_busy,
    worker_free,
    worker_gone,
    worker_lost,
    worker_ready,
)
from planner_service.metrics.store import StoreFailure, queue_is, store_answered, store_available, store_failed

__all__ = [
    "JOBS",
    "ByteMetrics",
    "CallMetrics",
    "MetricsEndpoint",
    "OutcomeKind",
    "StoreFailure",
    "batch_settled",
    "batches_late",
    "certificate_is_valid",
    "plan_found",
    "pool_closed",
    "pool_opened",
    "queue_is",
    "schedule_sent",
    "solve_ended",
    "store_answered",
    "store_available",
    "store_failed",
    "stream_ended",
    "stream_opened",
    "watch_event_loop",
    "worker_busy",
    "worker_free",
    "worker_gone",
    "worker_lost",
    "worker_ready",
]
