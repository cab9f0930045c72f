"""What a job is doing, in a word and in a sentence."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from planner_service.watching.words import ago, counted

if TYPE_CHECKING:
    from dip.planner.v1 import planner_pb2 as pb

IDLE_MS: Final = 120_000
"""A job that nobody wrote to for so long is idle: few iterations take as long."""


class JobState(enum.StrEnum):
    """What a job is doing."""

    NEW = "new"
    AHEAD = "ahead"
    BEHIND = "behind"
    IDLE = "idle"
    CLOSED = "closed"


def state_of(status: pb.JobStatus) -> JobState:
    """Tell from a job's status what it is doing."""
    if status.closed:
        return JobState.CLOSED
    if status.quiet_ms >= IDLE_MS:
        return JobState.IDLE
    if status.last_planned_iteration < 0 and status.last_reported_iteration < 0:
        return JobState.NEW
    return JobState.AHEAD if lead(status) > 0 else JobState.BEHIND


def needed_iteration(status: pb.JobStatus) -> int:
    """Return the iteration that ranks run by now, or run next."""
    return status.last_reported_iteration + 1


def lead(status: pb.JobStatus) -> int:
    """Return how many iterations the newest plan is ahead of the newest that ranks have run; below 0: behind it."""
    return status.last_planned_iteration - status.last_reported_iteration


def state_in_words(status: pb.JobStatus) -> str:
    """Say what a job is doing, in one sentence without its full stop."""
    waiting = f", {counted(status.waiting_batches, 'batch', 'batches')} waiting for a plan"
    waits = waiting if status.waiting_batches else ""
    match state_of(status):
        case JobState.CLOSED:
            return "closed"
        case JobState.IDLE:
            return f"idle: nothing heard of it for {ago(status.quiet_ms)}{waits}"
        case JobState.NEW:
            return f"registered, nothing planned yet{waits}"
        case JobState.AHEAD:
            return f"planned {counted(lead(status), 'iteration')} ahead of what ranks have run{waits}"
        case JobState.BEHIND:
            return f"planning is behind: iteration {needed_iteration(status)} has no plan yet{waits}"


def fell_back(status: pb.JobStatus) -> str:
    """Say in how many of the newest iterations a rank ran the fallback."""
    if not status.recent_reported_iterations:
        return "-"
    return f"{status.recent_fallback_iterations} of {status.recent_reported_iterations}"
