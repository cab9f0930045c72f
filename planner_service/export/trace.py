"""Traces in the Trace Event format, which chrome://tracing and https://ui.perfetto.dev open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dip.planner.v1 import planner_pb2 as pb

from planner_service.export.timelines import COMPUTE, measured_timeline, planned_timeline

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from planner_service.export.timelines import Span, Timeline

Event = dict[str, Any]
PLANNED, MEASURED = 1, 2
_SENDS = (pb.ACTION_KIND_SEND_ACTIVATION, pb.ACTION_KIND_SEND_GRADIENT)


def chrome_trace(plan: pb.Plan, reports: Sequence[pb.ReportExecutionRequest] = ()) -> dict[str, Any]:
    """Make a trace of a plan and of what ranks measured when they ran it.

    Parameters
    ----------
    plan
        The plan.
    reports
        What its ranks reported; some or all of them, or none.

    Returns
    -------
    dict
        For ``json.dump``: one process for the plan and one for the measurement, in each a thread for each rank, every
        compute action once, and an arrow for each transfer.

    Raises
    ------
    ValueError
        If the reports are not of this plan.
    """
    events = list(_events(plan, planned_timeline(plan), PLANNED, "planned"))
    if reports:
        events += _events(plan, measured_timeline(plan, reports), MEASURED, "measured")
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _events(plan: pb.Plan, timeline: Timeline, process: int, name: str) -> Iterator[Event]:
    yield _named("process_name", process, 0, f"{name}: {timeline.makespan_us / 1000:.1f} ms")
    for rank in sorted({span.rank for span in timeline.spans}):
        yield _named("thread_name", process, rank, f"rank {rank}")
    for span in timeline.spans:
        yield {
            "ph": "X",
            "pid": process,
            "tid": span.rank,
            "name": f"{span.module} {COMPUTE[span.kind]} {span.microbatch}",
            "cat": f"{span.module},{COMPUTE[span.kind]}",
            "ts": span.start_us,
            "dur": span.end_us - span.start_us,
            "args": {
                "module": span.module,
                "chunk": span.chunk,
                "microbatch": span.microbatch,
                "sub_microbatch": span.sub_microbatch,
                "units": span.units,
            },
        }
    yield from _arrows(plan, timeline, process)


def _arrows(plan: pb.Plan, timeline: Timeline, process: int) -> Iterator[Event]:
    """One arrow for each transfer, from the task that made what travels to the one that consumes it."""
    by_task = {(s.module, s.chunk, s.sub_microbatch, s.is_forward): s for s in timeline.spans if _makes(s)}
    sends = [action for schedule in plan.ranks for action in schedule.actions if action.kind in _SENDS]
    for number, send in enumerate(sends):
        forward = send.kind == pb.ACTION_KIND_SEND_ACTIVATION
        source = by_task.get((send.module, send.chunk, send.sub_microbatch, forward))
        target = by_task.get((send.consumer_module, send.consumer_chunk, send.consumer_sub_microbatch, forward))
        if source is None or target is None:  # a rank that did not report
            continue
        name = "activation" if forward else "gradient"
        arrow = {"pid": process, "id": process * len(sends) + number, "name": name, "cat": "transfer"}
        yield {**arrow, "ph": "s", "tid": source.rank, "ts": max(source.start_us, source.end_us - 1)}
        yield {**arrow, "ph": "f", "bp": "e", "tid": target.rank, "ts": target.start_us}


def _makes(span: Span) -> bool:
    """Whether what travels comes from this kind of task: weight halves hand on nothing."""
    return span.kind != pb.ACTION_KIND_BACKWARD_WEIGHT


def _named(what: str, process: int, thread: int, name: str) -> Event:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}
