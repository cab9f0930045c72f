"""What is told as JSON objects; docs/watching.md describes every field, and changes are additions alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dip.planner.v1 import planner_pb2 as pb

from planner_service.watching.rounds import fell_back, gap_of, measured_us, stalled_us
from planner_service.watching.state import lead, needed_iteration, state_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner_service.watching.failures import WatchError

Document = dict[str, Any]

_STATES: Final = {
    pb.ITERATION_STATE_UNSPECIFIED: "unknown",
    pb.ITERATION_STATE_WAITING: "waiting",
    pb.ITERATION_STATE_PLANNED: "planned",
    pb.ITERATION_STATE_UNPLANNED: "unplanned",
}


def jobs_document(statuses: Iterable[pb.JobStatus], planner: str) -> Document:
    """What `dip jobs --json` prints."""
    return {"planner": planner, "jobs": [_job(status) for status in statuses]}


def job_document(found: pb.GetJobResponse, planner: str) -> Document:
    """What `dip status --json` prints."""
    return {
        "planner": planner,
        "job": _job(found.status),
        "modules": [_module(module, found.partition) for module in found.spec.model.modules],
        "iterations": [_iteration(status) for status in found.recent],
    }


def away_document(error: WatchError, planner: str) -> Document:
    """What `--watch --json` prints while there is no answer."""
    return {"planner": planner, "error": error.message}


def _job(status: pb.JobStatus) -> Document:
    return {
        "job_id": status.job_id,
        "attempt": status.attempt,
        "state": str(state_of(status)),
        "closed": status.closed,
        "ranks": status.ranks,
        "replicas": status.replicas,
        "needed_iteration": needed_iteration(status),
        "last_planned_iteration": status.last_planned_iteration,
        "last_reported_iteration": status.last_reported_iteration,
        "lead": lead(status),
        "waiting_batches": status.waiting_batches,
        "quiet_ms": status.quiet_ms,
        "recent_reported_iterations": status.recent_reported_iterations,
        "recent_fallback_iterations": status.recent_fallback_iterations,
    }


def _module(module: pb.Module, partition: pb.Partition) -> Document:
    chunks = sorted((chunk for chunk in partition.chunks if chunk.module == module.name), key=lambda chunk: chunk.index)
    return {
        "name": module.name,
        "inputs": list(module.inputs),
        "layers": sum(run.count for run in module.layers),
        "frozen": module.frozen,
        "chunks": [
            {"rank": chunk.rank, "first_layer": chunk.first_layer, "num_layers": chunk.num_layers} for chunk in chunks
        ],
    }


def _iteration(status: pb.IterationStatus) -> Document:
    planned = status.state == pb.ITERATION_STATE_PLANNED
    reported = bool(status.ranks)
    return {
        "iteration": status.iteration,
        "replica": status.replica,
        "state": _STATES.get(status.state, "unknown"),
        "unplanned_reason": status.unplanned_reason or None,
        "makespan_us": status.makespan_us if planned else None,
        "lower_bound_us": status.lower_bound_us if planned else None,
        "gap": gap_of(status) if planned else None,
        "plan_is_fallback": status.fallback if planned else None,
        "found_by": status.found_by or None,
        "search_ms": status.search_ms if planned else None,
        "reported_ranks": len(status.ranks),
        "fallback_ranks": sorted(rank.rank for rank in status.ranks if rank.fallback),
        "fallback_reasons": [
            {"reason": group.reason, "ranks": list(group.ranks)} for group in fell_back(status) if group.reason
        ],
        "measured_us": measured_us(status) or None,
        "stalled_us": stalled_us(status) if reported else None,
    }
