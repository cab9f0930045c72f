"""One iteration of one replica, in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dip.planner.v1 import planner_pb2 as pb

from planner_service.watching.rounds import STALL_US, fell_back, gap_of, measured_us, stalled_us
from planner_service.watching.words import counted, duration, percent, printable, ranges

if TYPE_CHECKING:
    from collections.abc import Iterator


def explanation(status: pb.IterationStatus, job: pb.JobStatus) -> str:
    """Say in sentences, a line each, what was planned, what ran, and why that was not the plan."""
    of = f", replica {status.replica} of {job.replicas}" if job.replicas > 1 else ""
    title = f"Iteration {status.iteration} of {printable(job.job_id)}{of}:"
    return "\n".join((title, *(f"  {line}" for line in (*_planned(status), *_ran(status, job)))))


def _planned(status: pb.IterationStatus) -> Iterator[str]:
    match status.state:
        case pb.ITERATION_STATE_WAITING:
            yield "Its batch is here and waits for a plan."
        case pb.ITERATION_STATE_UNPLANNED:
            yield f"The planner has no plan of it: {printable(status.unplanned_reason)}."
        case pb.ITERATION_STATE_PLANNED:
            yield from _plan(status)
        case _:
            yield "Its batch never came to the planner, or was lost with the memory of a planner that was restarted."


def _plan(status: pb.IterationStatus) -> Iterator[str]:
    if status.fallback:
        why = f" ({printable(status.found_by)})" if status.found_by else ""
        fixed = f"the fixed schedule, of {duration(status.makespan_us)}"
        yield f"The planner gave it {fixed}, for want of a better one{why}."
        return
    found = f", found by {printable(status.found_by)}" if status.found_by else ""
    yield f"The planner planned {duration(status.makespan_us)} for it{found}, in {duration(status.search_ms * 1000)}."
    gap = gap_of(status)
    if gap == 0:
        yield "No schedule of it can be shorter: the planned time is the proven bound."
    elif gap is not None:
        yield f"No schedule of it can be shorter by more than {percent(1 - 1 / (1 + gap))}: that is proven."


def _ran(status: pb.IterationStatus, job: pb.JobStatus) -> Iterator[str]:
    if not status.ranks:
        over = status.iteration < job.last_reported_iteration
        yield "No rank reported it: the planner may have been away." if over else "No rank has reported it yet."
        return
    count = len(status.ranks)
    yield f"{'All' if count == job.ranks else f'{count} of'} {counted(job.ranks, 'rank')} reported it."
    groups = fell_back(status)
    for group in groups:
        who = f"rank {ranges(group.ranks)}" if len(group.ranks) < job.ranks or job.ranks == 1 else "all ranks"
        why = printable(group.reason) if group.reason else "the agent told no reason"
        yield f"{who[0].upper()}{who[1:]} ran the fixed fallback schedule: {why}."
    if not groups:
        yield "They ran the plan."
    elif sum(len(group.ranks) for group in groups) < count:
        yield f"{counted(count - sum(len(group.ranks) for group in groups), 'rank')} ran the plan."
    yield from _took(status, as_planned=not groups)


def _took(status: pb.IterationStatus, *, as_planned: bool) -> Iterator[str]:
    measured = measured_us(status)
    if measured:
        slowest = max(status.ranks, key=lambda rank: rank.measured_us)
        compared = ""
        if as_planned and status.makespan_us:
            part = measured / status.makespan_us - 1
            compared = f", {percent(abs(part))} {'more' if part >= 0 else 'less'} than planned"
        yield f"It took {duration(measured)}{compared} (rank {slowest.rank} was the last to end)."
    stalled = stalled_us(status)
    if stalled >= STALL_US:
        waiting = max(status.ranks, key=lambda rank: rank.stalled_us)
        yield f"Rank {waiting.rank} waited {duration(stalled)} for its schedule before it could start."
    else:
        yield "No rank waited for its schedule."
