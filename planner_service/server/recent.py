"""An iteration in a few numbers: made of its plan and of each report, kept beside them, and put together again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dip.planner.v1 import planner_pb2 as pb

from planner_service.kernel_cache import are_compiled

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner_service.pool import Planned
    from planner_service.store import RecentIteration

MOST_REPLICAS: Final = 512
MOST_ENTRIES: Final = 2_048
MOST_BYTES: Final = 2 * 2**20
"""What an answer may tell of; a client takes messages of 4 MiB unless it says otherwise."""


def plan_summary(planned: Planned) -> bytes:
    """Serialized IterationStatus of a plan."""
    plan = planned.plan
    return pb.IterationStatus(
        makespan_us=plan.makespan_us,
        lower_bound_us=plan.lower_bound_us,
        fallback=plan.fallback,
        found_by=_found_by(planned),
        search_ms=planned.elapsed_ms,
    ).SerializeToString()


def _found_by(planned: Planned) -> str:
    """Say what found a plan; where the search was ended from outside, or there was none, why."""
    if planned.interrupted:
        return f"interrupted: {planned.interrupted}"
    if planned.plan.fallback and not are_compiled():
        return "no search: its kernels are not compiled yet"
    return planned.plan.steps[-1].engine if planned.plan.steps else ""


def report_summary(report: pb.ReportExecutionRequest) -> bytes:
    """Serialized IterationStatus of one rank's report alone: behind others it parses as one of all of them."""
    rank = pb.RankStatus(
        rank=report.rank,
        fallback=report.fallback,
        fallback_reason=report.fallback_reason,
        stalled_us=report.stalled_us,
        measured_us=max((action.end_us for action in report.actions), default=0),
        peak_memory_bytes=report.peak_memory_bytes,
    )
    return pb.IterationStatus(ranks=[rank]).SerializeToString()


def told_replicas(request: pb.GetJobRequest, replicas: int) -> range:
    """Return the replicas that an answer tells of."""
    if request.HasField("replica"):
        return range(request.replica, request.replica + 1)
    return range(min(replicas, MOST_REPLICAS))


def told_iterations(request: pb.GetJobRequest, replicas: range) -> int:
    """Return of how many iterations of each replica an answer tells."""
    return min(request.recent_iterations, MOST_ENTRIES // len(replicas))


def statuses(found: Iterable[RecentIteration]) -> list[pb.IterationStatus]:
    """Put together what the store has, by iteration and replica, the newest last; the oldest beyond `MOST_BYTES` go."""
    told: list[pb.IterationStatus] = []
    size = 0
    for recent in sorted(found, key=lambda recent: (recent.iteration, recent.replica), reverse=True):
        status = _status(recent)
        size += status.ByteSize()
        if size > MOST_BYTES:
            break
        told.append(status)
    return told[::-1]


def _status(recent: RecentIteration) -> pb.IterationStatus:
    status = pb.IterationStatus.FromString(recent.summary + recent.reported)
    status.iteration, status.replica, status.state = recent.iteration, recent.replica, _state(recent)
    status.unplanned_reason = recent.unplanned_reason
    return status


def _state(recent: RecentIteration) -> pb.IterationState.ValueType:
    if not recent.submitted:
        return pb.ITERATION_STATE_UNSPECIFIED
    if not recent.settled:
        return pb.ITERATION_STATE_WAITING
    return pb.ITERATION_STATE_UNPLANNED if recent.unplanned_reason else pb.ITERATION_STATE_PLANNED
