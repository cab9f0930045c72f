"""What changes, a line each: for logs and pipes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner_service.watching.happened import happened, is_over
from planner_service.watching.rounds import Round, rounds
from planner_service.watching.state import fell_back, needed_iteration, state_in_words, state_of
from planner_service.watching.words import duration, percent, relative

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dip.planner.v1 import planner_pb2 as pb

    from planner_service.watching.state import JobState


class JobsLines:
    """Tells of each job when it got further."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[object, ...]] = {}

    def changed(self, statuses: Iterable[pb.JobStatus]) -> Iterator[str]:
        """Yield a line for each job that is not as it was."""
        gone = dict(self._told)
        for status in statuses:
            gone.pop(status.job_id, None)
            now = (
                status.attempt,
                state_of(status),
                status.last_planned_iteration,
                status.last_reported_iteration,
                status.recent_fallback_iterations,
            )
            if self._told.get(status.job_id) != now:
                self._told[status.job_id] = now
                yield _job_line(status)
        for job_id in gone:
            del self._told[job_id]
            yield f"{job_id}: gone"


class JobLines:
    """Tells of one job when it begins to do something else, and of each of its iterations once that is over."""

    def __init__(self) -> None:
        self._state: tuple[int, JobState] | None = None
        self._over = -1

    def changed(self, found: pb.GetJobResponse) -> Iterator[str]:
        """Yield a line for each change."""
        status = found.status
        if self._state is not None and self._state[0] != status.attempt:
            self._over = -1
        if self._state != (status.attempt, state_of(status)):
            self._state = (status.attempt, state_of(status))
            yield _job_line(status)
        for of in rounds(found.recent):
            # A rank that never reports is not waited for beyond the next iteration.
            over = is_over(of, status) or (of.num_reports and of.iteration < status.last_reported_iteration)
            if over and of.iteration > self._over:
                self._over = of.iteration
                yield round_line(of, status)


def round_line(of: Round, status: pb.JobStatus) -> str:
    """Say in one line how an iteration went."""
    parts = []
    if of.planned:
        gap = f" (gap {percent(of.gap)})" if of.gap is not None else ""
        parts.append(f"planned {duration(of.makespan_us)}{gap}")
    if of.measured_us:
        compared = f" ({relative(of.measured_us / of.makespan_us - 1)})" if of.compares else ""
        parts.append(f"measured {duration(of.measured_us)}{compared}")
    return f"iteration {of.iteration}: {', '.join((*parts, '; '.join(happened(of, status))))}"


def _job_line(status: pb.JobStatus) -> str:
    recent = f"; {fell_back(status)} fell back" if status.recent_reported_iterations else ""
    planned = f"{status.last_planned_iteration}" if status.last_planned_iteration >= 0 else "none"
    return (
        f"{status.job_id}: {state_in_words(status)}; needs iteration {needed_iteration(status)}, newest plan "
        f"{planned}{recent}"
    )
