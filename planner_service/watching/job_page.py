"""The page of one job: what it is, and how its newest iterations went."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.console import Group
from rich.text import Text

from planner_service.watching.happened import happened
from planner_service.watching.jobs_table import STATE_STYLES, bare_table
from planner_service.watching.rounds import Round, rounds
from planner_service.watching.state import fell_back, needed_iteration, state_in_words, state_of
from planner_service.watching.words import attempt, counted, duration, percent, printable, relative, visits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dip.planner.v1 import planner_pb2 as pb
    from rich.console import RenderableType
    from rich.table import Table

_WIDE: Final = 110
_FALLBACK: Final = "yellow"
_FOUND_BY: Final = 16
_COLUMNS: Final = 46  # about what stands before the last column
_WIDE_COLUMNS: Final = 82
_LEAST_LEFT: Final = 20
_MOST_LINES: Final = 3
"""What a page tells of one iteration; `dip status --iteration` tells all of it."""


def job_page(found: pb.GetJobResponse, *, width: int) -> RenderableType:
    """Lay out a job for a terminal of so many columns; the newest iteration comes first."""
    parts: list[RenderableType] = [_headline(found.status), _modules(found), Text(), *_progress(found.status)]
    newest_first = rounds(found.recent)[::-1]
    if newest_first:
        parts += [Text(), _iterations(newest_first, found.status, width=width)]
    return Group(*parts)


def _headline(status: pb.JobStatus) -> Text:
    line = Text.assemble((printable(status.job_id), "bold"), f"  attempt of {attempt(status.attempt)}, ")
    replicas = f"{counted(status.replicas, 'replica')} of " if status.replicas > 1 else ""
    line.append(f"{replicas}{counted(status.ranks, 'rank')}")
    return line


def _modules(found: pb.GetJobResponse) -> Table:
    table = bare_table()
    for name in ("module", "layers", "chunks", "on ranks"):
        table.add_column(name, justify="right" if name in ("layers", "chunks") else "left", overflow="fold")
    for module in found.spec.model.modules:
        chunks = sorted(
            (chunk for chunk in found.partition.chunks if chunk.module == module.name), key=lambda chunk: chunk.index
        )
        frozen = " (frozen)" if module.frozen else ""
        table.add_row(
            Text(f"{printable(module.name)}{frozen}"),
            Text(f"{sum(run.count for run in module.layers)}"),
            Text(f"{len(chunks)}"),
            Text(visits([chunk.rank for chunk in chunks])),
        )
    return table


def _progress(status: pb.JobStatus) -> Sequence[Text]:
    state = state_of(status)
    sentence = state_in_words(status)
    lines = [Text(f"{sentence[0].upper()}{sentence[1:]}.", style=STATE_STYLES[state])]
    planned = f"{status.last_planned_iteration}" if status.last_planned_iteration >= 0 else "none"
    facts = f"Needs iteration {needed_iteration(status)}, newest plan {planned}."
    if status.recent_reported_iterations:
        facts += f" Of the newest iterations that were run, {fell_back(status)} fell back."
    return [*lines, Text(facts)]


def _iterations(newest_first: Sequence[Round], status: pb.JobStatus, *, width: int) -> Table:
    wide = width >= _WIDE
    table = bare_table()
    numbers = ["iteration", "planned", "gap", "measured", "to plan"]
    for name in [*numbers, "stalled", "search"] if wide else numbers:
        table.add_column(name, justify="right", no_wrap=True)
    if wide:
        table.add_column("found by", no_wrap=True, max_width=_FOUND_BY, overflow="ellipsis")
    table.add_column("what happened", overflow="fold")
    left = max(_LEAST_LEFT, width - (_WIDE_COLUMNS if wide else _COLUMNS))
    for of in newest_first:
        table.add_row(*(_numbers(of) + (_search(of) if wide else ())), _happened(of, status, _MOST_LINES * left))
    return table


def _numbers(of: Round) -> tuple[Text, ...]:
    return (
        Text(f"{of.iteration}"),
        Text(duration(of.makespan_us) if of.planned else "-"),
        Text(percent(of.gap) if of.gap is not None else "-"),
        Text(duration(of.measured_us) if of.measured_us else "-"),
        Text(relative(of.measured_us / of.makespan_us - 1) if of.compares else "-"),
    )


def _search(of: Round) -> tuple[Text, ...]:
    stalled = Text(duration(of.stalled_us) if of.num_reports else "-")
    slowest = max(of.planned, key=lambda planned: planned.makespan_us, default=None)
    if slowest is None:
        return stalled, Text("-"), Text("-")
    # An engine may say after a colon how it went about it.
    return stalled, Text(duration(slowest.search_ms * 1000)), Text(printable(slowest.found_by.partition(":")[0]) or "-")


def _happened(of: Round, status: pb.JobStatus, most: int) -> Text:
    said = "; ".join(happened(of, status))
    shown = said if len(said) <= most else f"{said[: most - 3]}..."
    return Text(shown, style=_FALLBACK if of.fell_back or of.unplanned else "")
