"""Shows that the whole report holds every table that was measured, and how."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from bench_results import paper_rows, row, small_result, suite

from planner_service.bench.report.markdown import whole_report
from planner_service.bench.report.tables import TABLES
from planner_service.bench.result import Result

if TYPE_CHECKING:
    from pathlib import Path


def test_measured_tables_are_there_and_others_are_not() -> None:
    report = whole_report(small_result(), {"baselines": "images/bench-baselines.png"})
    for name in ("targets", "baselines", "ours", "mfu", "published"):
        assert TABLES[name].text(small_result()) in report
    assert "![Against every baseline](images/bench-baselines.png)" in report
    assert "Rising and falling" not in report
    assert "Not measured" not in report
    assert "1000 ms of search on 2 cores, 1 cases side by side. It took 12 s on a machine with 2 cores." in report


def test_faults_what_is_absent_and_what_is_unfinished_are_said() -> None:
    rows = [*paper_rows(), row("vlm-s", 9, "ours", 5, fault="rank 0 holds too much")]
    absent, unfinished = ("benchmarks.torch_orders:TORCH_BASELINES (no torch here)",), ("paper: vlm-l, web",)
    report = whole_report(Result(suites={"paper": suite(rows, absent=absent, unfinished=unfinished)}), {})
    assert "- vlm-s, web, seed 9, ours: rank 0 holds too much" in report
    assert "Absent: benchmarks.torch_orders:TORCH_BASELINES (no torch here)." in report
    assert "There was no time for 1 cases: paper: vlm-l, web." in report


def test_pictures_are_drawn_and_are_the_same_again(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from planner_service.bench.report.plots import draw_all

    drawn = draw_all(small_result(), tmp_path / ".", tmp_path)
    assert drawn == {"baselines": "bench-baselines.png"}
    first = (tmp_path / "bench-baselines.png").read_bytes()
    assert first.startswith(b"\x89PNG")
    draw_all(small_result(), tmp_path, tmp_path)
    assert (tmp_path / "bench-baselines.png").read_bytes() == first
