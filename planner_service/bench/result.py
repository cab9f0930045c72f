"""A result file: settings, machine and versions, and the rows of each suite as a table, one row a line.

Columns that hold the same in all rows are told once.
"""

from __future__ import annotations

import json
import os
import platform
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from planner_service.pool.cores import usable_cores

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from planner_service.bench.case import Row

FORMAT = 1
STANDS_IN = {"paper": "quick"}
PACKAGES = ("dip-planner", "numba", "numpy", "ortools", "protobuf", "torch")
HEAD = ("settings", "machine", "versions", "seconds")


@dataclass(frozen=True, kw_only=True, slots=True)
class SuiteResult:
    """Rows of one suite.

    Parameters
    ----------
    settings
        With which it was run.
    machine, versions
        On what.
    seconds
        How long it took.
    rows
        What was measured.
    unfinished
        Cases that there was no time for.
    absent
        Baselines that were asked for and could not be had.
    """

    settings: Mapping[str, Any]
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    seconds: float
    rows: tuple[Row, ...]
    unfinished: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()

    @property
    def faults(self) -> list[str]:
        """What is wrong with plans."""
        return [
            f"{row['config']}, {row['mix']}, seed {row['seed']}, {row.get('method', '')}: {row['fault']}"
            for row in self.rows
            if row.get("fault")
        ]


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """Results of suites by name."""

    suites: Mapping[str, SuiteResult] = field(default_factory=dict)

    def rows(self, suite: str) -> tuple[Row, ...]:
        """Rows of a suite; none where it was not run. The quick suite stands in for the whole one."""
        name = suite if suite in self.suites else STANDS_IN.get(suite, suite)
        return self.suites[name].rows if name in self.suites else ()

    def merged(self, other: Result) -> Result:
        """Return both; suites that both have are the other's."""
        return Result(suites={**self.suites, **other.suites})

    def text(self, summary: Iterable[Mapping[str, Any]] = ()) -> str:
        """JSON with one row a line."""
        suites = ",\n".join(f"  {json.dumps(name)}: {_suite_text(one)}" for name, one in self.suites.items())
        lines = ",\n".join(f"  {json.dumps(line)}" for line in summary)
        return f'{{\n "format": {FORMAT},\n "summary": [\n{lines}\n ],\n "suites": {{\n{suites}\n }}\n}}\n'

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Result:
        """Read what `text` wrote.

        Raises
        ------
        ValueError
            If it is something else.
        """
        if value.get("format") != FORMAT:
            raise ValueError(f"format is {value.get('format')!r}, must be {FORMAT}: this is no result of dip bench")
        try:
            return cls(suites={name: _suite(one) for name, one in value["suites"].items()})
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"suites are not as dip bench writes them: {error!r}") from error


def this_machine() -> dict[str, Any]:
    """Describe where this runs."""
    return {"cores": usable_cores(), "of_cores": os.cpu_count(), "kind": platform.machine()}


def these_versions() -> dict[str, str]:
    """Versions of Python and of what matters for results; packages that are not there are left out."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _suite_text(suite: SuiteResult) -> str:
    columns = list(dict.fromkeys(column for row in suite.rows for column in row))
    same = {column: suite.rows[0].get(column) for column in columns if _is_same(suite.rows, column)}
    columns = [column for column in columns if column not in same]
    head = "".join(f"   {json.dumps(name)}: {json.dumps(getattr(suite, name))},\n" for name in HEAD)
    lists = "".join(
        f"   {json.dumps(name)}: {json.dumps(getattr(suite, name))},\n" for name in ("unfinished", "absent")
    )
    rows = ",\n".join(f"    {_short([row.get(column) for column in columns])}" for row in suite.rows)
    table = f'   "same": {json.dumps(same)},\n   "columns": {json.dumps(columns)},\n   "rows": [\n{rows}\n   ]'
    return f"{{\n{head}{lists}{table}\n  }}"


def _is_same(rows: Sequence[Row], column: str) -> bool:
    """Whether all of several rows hold the same in a column."""
    return len(rows) > 1 and all(row.get(column) == rows[0].get(column) for row in rows)


def _short(value: Sequence[object]) -> str:
    return json.dumps(value, separators=(",", ":"))


def _suite(value: Mapping[str, Any]) -> SuiteResult:
    columns = value["columns"]
    rows = tuple(
        {**value["same"], **{column: cell for column, cell in zip(columns, row, strict=True) if cell is not None}}
        for row in value["rows"]
    )
    return SuiteResult(
        rows=rows,
        unfinished=tuple(value["unfinished"]),
        absent=tuple(value["absent"]),
        **{name: value[name] for name in HEAD},
    )
