"""Shows that the paper's figures stand beside ours, and that a baseline that is weaker here is called so."""

from __future__ import annotations

from bench_results import row, small_result, suite

from planner_service.bench.report.published import PUBLISHED, published_table
from planner_service.bench.result import Result


def _line(result: Result, beginning: str) -> list[str]:
    lines = [line for line in published_table(result).splitlines() if line.startswith(f"| {beginning}")]
    return lines[0].strip("| ").split(" | ")


def test_a_weaker_baseline_says_by_how_much_and_why() -> None:
    # 3 over 1.2 is 150% more, which is 41.9% above 76.2% more
    _what, reported, here, weaker, why = _line(small_result(), "its method over Megatron-LM interleaved, VLM |")
    assert (reported.split(" (")[0], here, weaker) == ("+15.6% to +76.2%", "+150.0%", "41.9%")
    assert "stages of equal weights" in why


def test_a_baseline_that_is_as_strong_is_not_called_weaker() -> None:
    rows = [row("vlm-s", 0, "paper", 1000), row("vlm-s", 0, "latency-balanced", 1500)]
    line = _line(Result(suites={"paper": suite(rows)}), "its method over nnScaler")
    assert line[2:] == ["+50.0%", "-", "-"]


def test_every_figure_has_a_source() -> None:
    assert all(published.source and published.low <= published.high for published in PUBLISHED)


def test_what_was_not_measured_is_left_out() -> None:
    assert len(published_table(Result()).splitlines()) == 2
