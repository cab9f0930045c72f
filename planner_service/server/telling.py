"""What the log and traces tell of calls and batches."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from google.rpc import code_pb2

from planner_service import logs
from planner_service.access import current_caller
from planner_service.tracing import tracer

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from planner_service.pool import Planned
    from planner_service.store import BatchKey, Outcome, ReplicaKey
    from planner_service.tracing import Span

_TOLD: Final = {
    "job_id": "job",
    "attempt": "attempt",
    "replica": "replica",
    "rank": "rank",
    "iteration": "iteration",
    "first_iteration": "first_iteration",
}
"""Fields of requests, by what the log calls them."""

_READING: Final = ("GetJob", "GetPlan")
_OF_STRANGERS: Final = (code_pb2.UNAUTHENTICATED, code_pb2.PERMISSION_DENIED)

_log = logging.getLogger(__name__)
_refused = logs.Throttle(_log)


def about_replica(key: ReplicaKey) -> dict[str, logs.Value]:
    """Fields of lines about a replica."""
    return {"job": key.job_id, "attempt": key.attempt, "replica": key.replica}


def about(key: BatchKey) -> dict[str, logs.Value]:
    """Fields of lines about a batch."""
    return {**about_replica(key.replica), "iteration": key.iteration}


def tell_request(request: Message) -> None:
    """Say with what is told of a call from here on what it is about, and who calls.

    Its names have to be validated by then.
    """
    held: dict[str, logs.Value] = {
        told: getattr(request, name) for name, told in _TOLD.items() if name in request.DESCRIPTOR.fields_by_name
    }
    held["caller"] = current_caller().name
    logs.bind(**held)
    tracer().current().set(**held)


def tell_refused(code: int, message: str, *, peer: str) -> None:
    """Write that a call is refused; of many such calls, few lines and their number."""
    status, method = code_pb2.Code.Name(code), logs.bound_fields().get("method")
    # Whoever asks for what may be there, a trainer at its start among them, is told that it is not.
    is_answer = code == code_pb2.NOT_FOUND and method in _READING
    level = logging.WARNING if code in _OF_STRANGERS else logging.DEBUG if is_answer else logging.INFO
    caller = current_caller().name
    _refused.line(level, "refused: %s", message, kind={"code": status, "method": method}, caller=caller, peer=peer)
    tracer().current().status(code, message)


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
