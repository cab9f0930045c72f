"""The page of one job: what it is, and how its newest iterations went."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.console import Group
from rich.text import Text

from planner_service.watching.happened import happened
from planner_service.watching.jobs_table import STATE_STYLES, bare_table
from planner_service.watching.rounds import Round, rounds
from planner_service.watching.state import fell_back, needed_iteration, state_in_words, state_of
from planner_service.watching.words import attempt, counted, duration, percent, relative, visits

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dip.planner.v1 import planner_pb2 as pb
    from rich.console import RenderableType
    from rich.table import Table

_WIDE: Final = 110
_FALLBACK: Final = "yellow"


def job_page(found: pb.GetJobResponse, *, width: int) -> RenderableType:
    """Lay out a job for a terminal of so many columns; the newest iteration comes first."""
    parts: list[RenderableType] = [_headline(found.status), _modules(found), Text(), *_progress(found.status)]
    newest_first = rounds(found.recent)[::-1]
    if newest_first:
        parts += [Text(), _iterations(newest_first, found.status, wide=width >= _WIDE)]
    return Group(*parts)


def _headline(status: pb.JobStatus) -> Text:
    line = Text.assemble((status.job_id, "bold"), f"  attempt of {attempt(status.attempt)}, ")
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
            Text(f"{module.name}{frozen}"),
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


def _iterations(newest_first: Sequence[Round], status: pb.JobStatus, *, wide: bool) -> Table:
    table = bare_table()
    numbers = ["iteration", "planned", "gap", "measured", "to plan"]
    for name in [*numbers, "stalled", "search"] if wide else numbers:
        table.add_column(name, justify="right", no_wrap=True)
    if wide:
        table.add_column("found by", no_wrap=True)
    table.add_column("what happened", overflow="fold")
    for of in newest_first:
        table.add_row(*_row(of, status, wide=wide))
    return table


def _row(of: Round, status: pb.JobStatus, *, wide: bool) -> Sequence[Text]:
    cells = [
        Text(f"{of.iteration}"),
        Text(duration(of.makespan_us) if of.planned else "-"),
        Text(percent(of.gap) if of.gap is not None else "-"),
        Text(duration(of.measured_us) if of.measured_us else "-"),
        Text(relative(of.measured_us / of.makespan_us - 1) if of.compares else "-"),
    ]
    if wide:
        cells += [Text(duration(of.stalled_us) if of.num_reports else "-"), *_search(of)]
    phrases = happened(of, status)
    return [*cells, Text("; ".join(phrases), style=_FALLBACK if of.fell_back or of.unplanned else "")]


def _search(of: Round) -> Sequence[Text]:
    slowest = max(of.planned, key=lambda planned: planned.makespan_us, default=None)
    if slowest is None:
        return [Text("-"), Text("-")]
    return [Text(duration(slowest.search_ms * 1000)), Text(slowest.found_by or "-")]
