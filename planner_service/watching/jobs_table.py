"""The table of jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.table import Table
from rich.text import Text

from planner_service.watching.state import JobState, fell_back, lead, needed_iteration, state_of
from planner_service.watching.words import ago, attempt, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dip.planner.v1 import planner_pb2 as pb
    from rich.console import RenderableType

_WIDE: Final = 110
_NARROW: Final = 72
"""With fewer columns, when the attempt began makes room for the job's name."""
STATE_STYLES: Final = {
    JobState.NEW: "cyan",
    JobState.AHEAD: "green",
    JobState.BEHIND: "bold yellow",
    JobState.IDLE: "dim",
    JobState.CLOSED: "dim",
}


def jobs_table(statuses: Iterable[pb.JobStatus], *, width: int) -> RenderableType:
    """Lay out jobs for a terminal of so many columns."""
    statuses = list(statuses)
    if not statuses:
        return Text("No jobs. A trainer registers its job when it starts.")
    wide, narrow = width >= _WIDE, width < _NARROW
    table = bare_table()
    table.add_column("job", overflow="fold")
    if not narrow:
        table.add_column("attempt of" if wide else "attempt", no_wrap=True)
    numbers = ["needs", "planned", "lead", "fell back"]
    for name in ["ranks", *numbers, "waiting"] if wide else numbers:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("state", overflow="fold")
    for status in statuses:
        table.add_row(*_row(status, wide=wide, narrow=narrow))
    return table


def bare_table() -> Table:
    """Make a table without lines, which reads the same where it is piped."""
    return Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)


def _row(status: pb.JobStatus, *, wide: bool, narrow: bool) -> Sequence[Text]:
    state = state_of(status)
    planned = status.last_planned_iteration
    cells = [
        Text(f"{needed_iteration(status)}"),
        Text(f"{planned}" if planned >= 0 else "-"),
        Text(f"{lead(status):+d}"),
        Text(fell_back(status), style="yellow" if status.recent_fallback_iterations else ""),
    ]
    if wide:
        cells = [Text(f"{status.replicas} x {status.ranks}"), *cells, Text(f"{status.waiting_batches}")]
    said = f"{state} for {ago(status.quiet_ms)}" if state is JobState.IDLE else str(state)
    return [
        Text(printable(status.job_id)),
        *([] if narrow else [Text(attempt(status.attempt))]),
        *cells,
        Text(said, style=STATE_STYLES[state]),
    ]
