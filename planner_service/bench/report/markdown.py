"""The whole report as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner_service.bench.report.tables import TABLES
from planner_service.bench.suites.registry import SUITES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from planner_service.bench.result import Result, SuiteResult

HEAD = """# Benchmarks

Written by `dip bench --report`, from a result file alone. Every plan, ours and others', is run in the same simulator
and checked by `dip check`; every baseline has the same batch, costs and memory, its best partition for the batch, and
recomputes no more than it must. [architecture.md](architecture.md) says what the terms mean, [costs.md](costs.md) where
costs come from."""


def whole_report(result: Result, pictures: Mapping[str, str]) -> str:
    """Write the report.

    Parameters
    ----------
    result
        What was measured.
    pictures
        Paths of pictures by the table that they belong to.
    """
    return (
        "\n\n".join((HEAD, *_faults(result), *_sections(result, pictures), "## How it was measured", *_runs(result)))
        + "\n"
    )


def _faults(result: Result) -> Iterator[str]:
    faults = [fault for suite in result.suites.values() for fault in suite.faults]
    if faults:
        yield "**Some plans have faults:**\n\n" + "\n".join(f"- {fault}" for fault in faults)


def _sections(result: Result, pictures: Mapping[str, str]) -> Iterator[str]:
    for name, table in TABLES.items():
        if not any(result.rows(suite) for suite in table.suites):
            continue
        yield f"## {table.title}"
        yield table.about
        yield table.text(result)
        if name in pictures:
            yield f"![{table.title}]({pictures[name]})"


def _runs(result: Result) -> Iterator[str]:
    for name, suite in result.suites.items():
        yield f"### {name}\n\n{SUITES[name].about.capitalize() if name in SUITES else ''}. " + " ".join(_run(suite))


def _run(suite: SuiteResult) -> Iterator[str]:
    settings = suite.settings
    yield (
        f"Set-ups {', '.join(settings['configs'])}; mixes {', '.join(settings['mixes'])}; seeds "
        f"{', '.join(map(str, settings['seeds']))}; {settings['microbatches']} microbatches; "
        f"{settings['budget_ms']} ms of search on {settings['cores']} cores, {settings['jobs']} cases side by side."
    )
    yield f"It took {suite.seconds:.0f} s on a machine with {suite.machine['cores']:g} cores."
    yield "Versions: " + ", ".join(f"{name} {number}" for name, number in suite.versions.items()) + "."
    if suite.absent:
        yield "Absent: " + "; ".join(suite.absent) + "."
    if suite.unfinished:
        yield f"There was no time for {len(suite.unfinished)} cases: " + "; ".join(suite.unfinished) + "."
