"""What the log and a trace tell of a batch."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from planner_service import logs

if TYPE_CHECKING:
    from planner_service.pool import Planned
    from planner_service.store import BatchKey, Outcome, ReplicaKey
    from planner_service.tracing import Span

_log = logging.getLogger(__name__)


def about_replica(key: ReplicaKey) -> dict[str, logs.Value]:
    """Fields of lines about a replica."""
    return {"job": key.job_id, "attempt": key.attempt, "replica": key.replica}


def about(key: BatchKey) -> dict[str, logs.Value]:
    """Fields of lines about a batch."""
    return {**about_replica(key.replica), "iteration": key.iteration}


def tell_settled(outcome: Outcome, planned: Planned | None) -> None:
    """One line for each batch: its plan, and where the search was not let end, why; or why it has none.

    Parameters
    ----------
    outcome
        What stands in the store.
    planned
        The plan that it was made of; None where there is none, or another start of this batch found it.
    """
    if outcome.unplanned_reason:
        _log.warning("unplanned", extra=logs.fields(reason=outcome.unplanned_reason))
    elif planned is None:
        _log.info("planned, as before")
    else:
        level = logging.WARNING if planned.interrupted else logging.INFO
        _log.log(level, "planned", extra=logs.fields(**_figures(planned)))


def tell_solved(span: Span, planned: Planned) -> None:
    """Write into the span of a solve what it came to, and each improvement when it was found."""
    span.set(**_figures(planned))
    for step in planned.plan.steps:
        ago_ms = max(0, planned.elapsed_ms - step.elapsed_ms)
        span.event("found", ago_ms=ago_ms, engine=step.engine, makespan_us=step.makespan_us)


def _figures(planned: Planned) -> dict[str, str | int | float | bool | None]:
    plan = planned.plan
    return {
        "makespan_us": plan.makespan_us,
        "gap": round(plan.gap, 4),
        "found_by": plan.found_by,
        "elapsed_ms": planned.elapsed_ms,
        "interrupted": planned.interrupted or None,
    }
