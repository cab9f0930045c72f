"""Shows that every generated table of the repository is what the committed result renders to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from planner_service.bench.report.marks import OPENING, fill
from planner_service.bench.report.tables import TABLES
from planner_service.bench.result import Result

REPOSITORY = Path(__file__).parents[3]
COMMITTED = REPOSITORY / "docs/benchmarks.json"
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
MARKED = [page for page in PAGES if OPENING.search(page.read_text(encoding="utf-8"))]
MOST_BYTES = 200 * 1024


@pytest.fixture(scope="module")
def committed() -> Result:
    return Result.of(json.loads(COMMITTED.read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", MARKED, ids=lambda page: page.name)
def test_tables_between_marks_are_those_of_the_result(page: Path, committed: Result) -> None:
    text = page.read_text(encoding="utf-8")
    assert fill(text, {name: table.text(committed) for name, table in TABLES.items()}) == text


def test_the_report_holds_every_table_of_the_result(committed: Result) -> None:
    report = (REPOSITORY / "docs/benchmarks.md").read_text(encoding="utf-8")
    for table in TABLES.values():
        if any(committed.rows(suite) for suite in table.suites):
            assert table.text(committed) in report


def test_no_plan_of_it_has_a_fault(committed: Result) -> None:
    assert [fault for suite in committed.suites.values() for fault in suite.faults] == []


def test_it_stays_small() -> None:
    assert COMMITTED.stat().st_size < MOST_BYTES
