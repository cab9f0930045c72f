"""Shows that ``dip bench`` explains what it cannot do, and makes reports of stored results."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from bench_results import row, small_result, suite

from planner_service.bench.report.tables import TABLES
from planner_service.bench.result import Result

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """Return the path of a small result."""
    path = tmp_path / "result.json"
    path.write_text(small_result().text())
    return path


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "--json says where results go, or --report which ones to report"),
        (("--suite", "speed"), "suite names 'speed', must be of paper, "),
        (("--suite", ""), "suite names '', must be of paper, "),
        (("--configs", "vlm-s,vlm-xxl"), "configs names 'vlm-xxl', must be of vlm-s, "),
        (("--mix", "radio"), "mixes names 'radio', must be of web, "),
        (("--seeds", "0,-4"), "seeds is -4, must be at least 0"),
        (("--seeds", "few"), "argument --seeds: 'few' is no list of whole numbers by commas"),
        (("--time-limit", "-3"), "--time-limit is -3, must be above 0"),
        (("--microbatches", "0"), "microbatches is 0, must be at least 1"),
        (("--budget-ms", "0"), "budget_ms is 0, must be at least 1"),
        (("--cores", "0"), "cores is 0, must be at least 1"),
        (("--jobs", "0"), "--jobs is 0, must be at least 1"),
        (("--baselines", "nothing"), "baselines names 'nothing', must be module:NAME"),
    ],
)
def test_what_cannot_be_measured_is_explained(
    dip: Callable[..., Any], tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    out = ("--json", tmp_path / "out.json") if arguments else ()
    ran = dip("bench", *arguments, *out)
    assert ran.code == 2
    assert says in ran.err
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_named_before_anything_is_measured(dip: Callable[..., Any]) -> None:
    ran = dip("bench", "--json", "/does/not/exist/out.json")
    assert ran.code == 2
    assert "cannot write /does/not/exist/out.json.partial: No such file" in ran.err


def test_standard_output_cannot_be_gone_on_with(dip: Callable[..., Any]) -> None:
    assert "--json is -, must be a file" in dip("bench", "--json", "-").err


def test_a_run_is_measured_stored_and_summed_up(dip: Callable[..., Any], tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    arguments = ("--suite", "memory", "--mix", "text", "--seeds", 0, "--microbatches", 2, "--budget-ms", 30)
    ran = dip("bench", *arguments, "--cores", 1, "--json", out)
    assert ran.code == 0, ran.err
    value = json.loads(out.read_text())
    assert {row["method"] for row in Result.of(value).rows("memory")} == {"megatron-interleaved", "optimus", "ours"}
    assert len(value["summary"]) > 10
    assert "[1/1] memory: vlm-m, text, seed 0, 2 microbatches" in ran.err
    assert list(tmp_path.iterdir()) == [out]


def test_a_report_prints_what_was_measured(dip: Callable[..., Any], stored: Path) -> None:
    ran = dip("bench", "--report", stored)
    assert ran.code == 0
    assert TABLES["targets"].text(small_result()) in ran.out
    assert "Against every baseline\n" in ran.out
    assert "Not measured" not in ran.out


def test_reports_and_tables_are_written(dip: Callable[..., Any], stored: Path, tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("# Mine\n\n<!-- bench:baselines -->\n<!-- /bench -->\n")
    other = tmp_path / "other.json"
    other.write_text(Result(suites={"sizes": suite([row("vlm-s", 0, "ours", 1000, images=4)])}).text())
    options = ("--markdown", tmp_path / "all.md", "--into", readme, "--keep", tmp_path / "kept.json")
    assert dip("bench", "--report", stored, other, *options).code == 0
    kept = Result.of(json.loads((tmp_path / "kept.json").read_text()))
    assert set(kept.suites) == {"paper", "sizes"}
    assert TABLES["baselines"].text(kept) in readme.read_text()
    assert "## Images in a sub-microbatch" in (tmp_path / "all.md").read_text()


def test_pictures_go_where_the_report_finds_them(dip: Callable[..., Any], stored: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    options = ("--markdown", tmp_path / "all.md", "--plots", tmp_path / "images")
    assert dip("bench", "--report", stored, *options).code == 0
    assert (tmp_path / "images/bench-baselines.png").exists()
    assert "(images/bench-baselines.png)" in (tmp_path / "all.md").read_text()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not JSON"),
        ("[]", "holds a JSON list, must be an object"),
        ('{"job": {}}', "format is None, must be 1: this is no result of dip bench"),
    ],
)
def test_files_that_are_no_results_are_refused(dip: Callable[..., Any], tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    ran = dip("bench", "--report", path)
    assert ran.code == 2
    assert says in ran.err


def test_broken_marks_and_missing_files_are_named(dip: Callable[..., Any], stored: Path, tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("<!-- bench:speed -->\n<!-- /bench -->\n")
    ran = dip("bench", "--report", stored, "--into", readme)
    assert ran.code == 2
    assert f"{readme}: mark names 'speed', must be of targets, " in ran.err
    ran = dip("bench", "--report", tmp_path / "none.json")
    assert ran.code == 2
    assert "cannot read" in ran.err


def test_a_plan_with_a_fault_is_a_failure(dip: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    faulty = suite([row("vlm-s", 0, "ours", 5, fault="rank 0 holds too much")])
    path.write_text(Result(suites={"paper": faulty}).text())
    ran = dip("bench", "--report", path)
    assert ran.code == 1
    assert "fault: vlm-s, web, seed 0, ours: rank 0 holds too much" in ran.err
