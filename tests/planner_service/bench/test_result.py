"""Shows that result files say all that was measured, and that other files are refused."""

from __future__ import annotations

import json

import pytest
from bench_results import misfit, paper_rows, row, small_result, suite

from planner_service.bench.result import Result, these_versions, this_machine


def test_a_result_is_read_as_it_was_written() -> None:
    result = small_result()
    assert Result.of(json.loads(result.text())) == result


def test_each_row_is_one_line() -> None:
    lines = small_result().text([{"what": "a figure", "measured": None}]).splitlines()
    assert sum(line.startswith("    [") for line in lines) == len(paper_rows())
    assert '  {"what": "a figure", "measured": null}' in lines


def test_what_is_the_same_in_all_rows_is_told_once() -> None:
    text = small_result().text()
    assert text.count("microbatches") == 2  # in the settings and here
    assert '"mix": "web", "microbatches": 16' in text


def test_results_are_put_together_and_the_later_one_counts() -> None:
    first = Result(suites={"paper": suite([row("vlm-s", 0, "ours", 5)]), "sizes": suite([])})
    later = Result(suites={"paper": suite([row("vlm-s", 0, "ours", 4)])})
    both = first.merged(later)
    assert set(both.suites) == {"paper", "sizes"}
    assert both.rows("paper") == later.rows("paper")
    assert both.rows("waves") == ()


def test_the_quick_suite_stands_in_for_the_whole_one() -> None:
    quick, whole = suite([row("vlm-s", 0, "ours", 5)]), suite([row("vlm-s", 0, "ours", 4)])
    assert Result(suites={"quick": quick}).rows("paper") == quick.rows
    assert Result(suites={"quick": quick, "paper": whole}).rows("paper") == whole.rows


def test_faults_say_whose_they_are() -> None:
    faulty = row("vlm-s", 2, "ours", 5, fault="rank 0 holds too much")
    assert suite([faulty, misfit("vlm-s", 0, "megatron")]).faults == ["vlm-s, web, seed 2, ours: rank 0 holds too much"]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({}, "format is None, must be 1"),
        ({"format": 2, "suites": {}}, "format is 2, must be 1"),
        ({"format": 1}, "suites are not as dip bench writes them"),
        ({"format": 1, "suites": []}, "suites are not as dip bench writes them"),
        ({"format": 1, "suites": {"paper": {"same": {}, "columns": ["config"], "rows": [["a"]]}}}, "suites are not as"),
        ({"format": 1, "suites": {"paper": {"same": {}, "columns": ["config"], "rows": [["a", "b"]]}}}, "is longer"),
    ],
)
def test_other_files_are_refused(value: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Result.of(value)


def test_machine_and_versions_are_named() -> None:
    assert float(this_machine()["cores"]) > 0
    assert {"python", "dip-planner", "ortools", "numba"} <= these_versions().keys()
