"""What became of an iteration, in few words: who ran what, and why not the plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from planner_service.watching.rounds import STALL_US
from planner_service.watching.words import counted, duration, printable, ranges

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dip.planner.v1 import planner_pb2 as pb

    from planner_service.watching.rounds import FellBack, Round

NO_REASON: Final = "no reason told"
_SHOWN_REASONS: Final = 3


def happened(of: Round, job: pb.JobStatus) -> list[str]:
    """Say in a few phrases what became of an iteration, the most important first."""
    return [*_fell_back(of.fell_back, job), *_without_plan(of, job), *_ran(of, job)]


def is_over(of: Round, job: pb.JobStatus) -> bool:
    """Whether all ranks of the replicas told of have reported."""
    return of.num_reports >= job.ranks * len(of.replicas)


def _without_plan(of: Round, job: pb.JobStatus) -> Iterator[str]:
    reasons: dict[str, list[int]] = {}
    for status in of.unplanned:
        reasons.setdefault(status.unplanned_reason, []).append(status.replica)
    for reason, replicas in list(reasons.items())[:_SHOWN_REASONS]:
        where = f" for replica {ranges(replicas)}" if job.replicas > 1 else ""
        yield f"no plan{where}: {printable(reason)}"
    if len(reasons) > _SHOWN_REASONS:
        yield f"and {len(reasons) - _SHOWN_REASONS} more reasons"
    yield from _fixed(of, job)


def _fixed(of: Round, job: pb.JobStatus) -> Iterator[str]:
    """Say of which replicas the planner's own plan is the fixed schedule, and why where it knows."""
    causes: dict[str, list[int]] = {}
    for status in of.planned:
        if status.fallback:
            causes.setdefault(status.found_by, []).append(status.replica)
    for cause, replicas in list(causes.items())[:_SHOWN_REASONS]:
        if cause or not of.num_reports:  # else the ranks' own reasons tell it
            where = f" for replica {ranges(replicas)}" if job.replicas > 1 else ""
            yield f"the plan{where} is the fixed schedule{f' ({printable(cause)})' if cause else ''}"


def _ran(of: Round, job: pb.JobStatus) -> Iterator[str]:
    if of.stalled_us >= STALL_US and not of.fell_back:  # else the reasons tell
        yield f"waited {duration(of.stalled_us)} for the schedule"
    if of.ran_planned:
        yield "ran the plan"
    if of.num_reports and not is_over(of, job):
        yield f"{of.num_reports} of {job.ranks * len(of.replicas)} ranks reported"
    if not of.num_reports:
        yield from _not_reported(of, job)


def _not_reported(of: Round, job: pb.JobStatus) -> Iterator[str]:
    if of.num_waiting == len(of.replicas):
        yield "waits for a plan"
    elif of.num_waiting:
        yield f"{of.num_waiting} of {len(of.replicas)} replicas wait for a plan"
    elif of.iteration < job.last_reported_iteration:
        yield "no rank reported it"
    elif of.planned:
        yield "planned"


def _fell_back(groups: tuple[FellBack, ...], job: pb.JobStatus) -> Iterator[str]:
    reasons: dict[str, list[FellBack]] = {}
    for group in groups:
        reasons.setdefault(group.reason, []).append(group)
    for reason, who in list(reasons.items())[:_SHOWN_REASONS]:
        yield f"fell back on {_who(who, job)}: {printable(reason) or NO_REASON}"
    if len(reasons) > _SHOWN_REASONS:
        yield f"and for {len(reasons) - _SHOWN_REASONS} more reasons"


def _who(groups: list[FellBack], job: pb.JobStatus) -> str:
    num_ranks = sum(len(group.ranks) for group in groups)
    if job.replicas == 1:
        ranks = groups[0].ranks
        return "all ranks" if num_ranks == job.ranks > 1 else f"rank {ranges(ranks)}"
    replicas = ranges(group.replica for group in groups)
    if num_ranks == job.ranks * len(groups):
        return f"replica {replicas}"
    if len(groups) == 1:
        return f"replica {replicas}, rank {ranges(groups[0].ranks)}"
    return f"replica {replicas}, {counted(num_ranks, 'rank')}"
