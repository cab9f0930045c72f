"""Shows that targets are computed as they are worded, and called met only where they are."""

from __future__ import annotations

import pytest
from bench_results import misfit, row, small_result, suite

from planner_service.bench.report.targets import TARGETS, summary, targets_table
from planner_service.bench.result import Result


def _measured(result: Result) -> dict[str, tuple[float | None, str]]:
    return {f"{i} {line['what']}": (line["measured"], line["met"]) for i, line in enumerate(summary(result))}


def _of(result: Result, beginning: str) -> list[tuple[float | None, str]]:
    return [value for what, value in _measured(result).items() if what.partition(" ")[2].startswith(beginning)]


def test_medians_worsts_and_averages_are_those_of_all_batches() -> None:
    result = small_result()
    assert _of(result, "over the ideal, backward split, memory limits cleared: median") == [(0.02, "yes")]
    assert _of(result, "the same: worst") == [(0.03, "aim")]
    assert _of(result, "over the paper's method as written") == [(0.2, "aim")]
    assert _of(result, "over it tuned (our segments and sizes), backward whole: worst batch") == [(0.1, "aim")]
    assert _of(result, "the same, ours with the backward split: median") == [(0.155, "aim")]


def test_set_ups_are_told_apart_and_the_best_of_torch_counts() -> None:
    result = small_result()
    assert _of(result, "throughput over Megatron interleaved by weights: VLM") == [(2.0, "yes")]
    assert _of(result, "the same: T2V")[0] == (1.0, "yes")
    assert _of(result, "over the best of torch's own static orders: VLM") == [(0.4, "yes")]
    assert _of(result, "the same: T2V")[1] == (None, "-")


def test_other_mixes_do_not_count() -> None:
    rows = [row("vlm-s", 0, "ours", 1000), row("vlm-s", 0, "paper", 1100)]
    rows += [{**one, "mix": "waves", "makespan_us": 5000} for one in rows if one["method"] == "paper"]
    assert _of(Result(suites={"paper": suite(rows)}), "over the paper's method") == [(0.1, "yes")]


def test_a_batch_that_does_not_fit_is_no_figure() -> None:
    rows = [row("vlm-s", 0, "ours", 1000), misfit("vlm-s", 0, "paper")]
    assert _of(Result(suites={"paper": suite(rows)}), "over the paper's method") == [(None, "-")]


@pytest.mark.parametrize(("value", "met"), [(0.015, "aim"), (0.016, "yes"), (0.03, "yes"), (0.031, "no"), (None, "-")])
def test_less_is_better_for_gaps(value: float | None, met: str) -> None:
    assert TARGETS[0].met(value) == met


@pytest.mark.parametrize(("value", "met"), [(0.15, "aim"), (0.149, "yes"), (0.08, "yes"), (0.079, "no")])
def test_more_is_better_for_gains(value: float, met: str) -> None:
    assert next(target for target in TARGETS if target.aim == 0.15 and target.least == 0.08).met(value) == met


def test_progress_is_the_first_time_near_the_long_runs_best() -> None:
    def step(budget_ms: int, elapsed_ms: int, makespan_us: int) -> dict[str, str | int | float | bool | None]:
        batch = {"config": "vlm-s", "mix": "web", "seed": 0, "microbatches": 26, "size": "1,000 tasks"}
        times = {"budget_ms": budget_ms, "elapsed_ms": elapsed_ms, "makespan_us": makespan_us}
        return {**batch, "method": "ours", **times}

    rows = [step(1000, 0, 1200), step(1000, 700, 1010), step(250, 200, 1011), step(60_000, 900, 1010)]
    rows.append(step(60_000, 50_000, 1000))
    result = Result(suites={"progress": suite(rows)})
    assert _of(result, "time to within 1%") == [(0.7, "yes")]
    assert _of(result, "the same, 2,500 stage tasks") == [(None, "-")]


def test_latencies_are_those_of_the_worst_instance() -> None:
    batch = {"config": "vlm-s", "mix": "web", "seed": 0, "tasks": 2500, "what": "first_plan_ms"}
    rows = [{**batch, "microbatches": 64, "value": 120.0}, {**batch, "microbatches": 16, "value": 40.0}]
    assert _of(Result(suites={"latency": suite(rows)}), "first valid plan") == [(120.0, "yes")]


def test_the_table_shows_what_was_measured_alone() -> None:
    lines = targets_table(small_result()).splitlines()
    assert lines[0] == "| what | measured | at least | aim | met |"
    assert "| throughput over Megatron interleaved by weights: VLM | +200.0% | +120.0% | more | yes |" in lines
    assert not any("compiled decode" in line for line in lines)
