"""Shows that tables say what rows hold, and what to run where there are none."""

from __future__ import annotations

import pytest
from bench_results import misfit, row, small_result, suite

from planner_service.bench.report.tables import TABLES
from planner_service.bench.result import Result


def _lines(name: str, result: Result) -> list[str]:
    return TABLES[name].text(result).splitlines()


@pytest.mark.parametrize("name", TABLES)
def test_what_was_not_measured_says_how_to(name: str) -> None:
    assert TABLES[name].text(Result()) == f"Not measured: `dip bench --suite {','.join(TABLES[name].suites)}`."


def test_baselines_are_ratios_to_ours_and_say_where_they_do_not_fit() -> None:
    lines = _lines("baselines", small_result())
    assert lines[0] == "| makespan over ours | t2v-s | vlm-s |"
    assert "| megatron-interleaved | **2.00** | 3.00 (2 of 3) |" in lines
    assert "| paper-tuned | - | **1.16** |" in lines or "| paper-tuned | - | **1.15** |" in lines
    assert "| torch-dual-pipe-v | - | 1.50 |" in lines
    assert lines[-1].startswith("| the strongest | megatron-interleaved: 2.00 | paper-tuned: 1.1")


def test_ours_are_told_apart_by_memory_and_backward() -> None:
    lines = _lines("ours", small_result())
    assert "| vlm-s, memory cleared, split | 2.0% (2.0%) | 2.0% (3.0%) | 70.0 | 1,000 | 3,000 | 2,500 |" in lines
    assert not any("halved" in line for line in lines)


def test_steps_are_throughput_over_megatron() -> None:
    rows = [row("vlm-s", 0, "megatron-interleaved", 3_000_000), row("vlm-s", 0, "split", 1_000_000)]
    lines = _lines("steps", Result(suites={"steps": suite(rows)}))
    assert lines[2:] == ["| Megatron interleaved, by weights | 3.00 |", "| + split backward | 1.00 (+200.0%) |"]


def test_sizes_are_over_the_best() -> None:
    rows = [row("vlm-s", 0, "ours", us, images=images) for images, us in ((4, 1_100_000), (12, 1_000_000))]
    lines = _lines("sizes", Result(suites={"sizes": suite(rows)}))
    assert lines[2:] == ["| 4 | 1,100 | +10.0% |", "| 12 | 1,000 | 0.0% |"]


def test_memory_is_at_equal_peaks() -> None:
    rows = [
        row("vlm-m", 0, "ours", 1000),
        row("vlm-m", 0, "ours", 1100, memory="as optimus", peak_bytes=60_000_000_000),
        row("vlm-m", 0, "optimus", 1500, peak_bytes=60_000_000_000),
    ]
    lines = _lines("memory", Result(suites={"memory": suite(rows)}))
    assert "| ours, on each rank at most Optimus-like's peak | 60.0 | 1.10 |" in lines
    assert "| Optimus-like | 60.0 | 1.50 |" in lines


def test_waves_are_whole_runs() -> None:
    rows = [
        row("vlm-s", 0, method, us, iteration=i, images=3)
        for i, (ours, other) in enumerate(((1_000_000, 1_000_000), (1_000_000, 3_000_000)))
        for method, us in (("ours", ours), ("megatron-interleaved", other))
    ]
    lines = _lines("waves", Result(suites={"waves": suite(rows)}))
    assert lines[2:] == [
        "| ours | 2 of 2 | 2.0 | 1.00 |",
        "| megatron-interleaved | 2 of 2 | 4.0 | 2.00 |",
    ]


def test_iterations_that_do_not_fit_are_compared_with_nothing() -> None:
    rows = [row("vlm-s", 0, "ours", us, iteration=i) for i, us in enumerate((1_000_000, 5_000_000))]
    rows += [row("vlm-s", 0, "static", 2_000_000, iteration=0), {**misfit("vlm-s", 0, "static"), "iteration": 1}]
    assert _lines("waves", Result(suites={"waves": suite(rows)}))[3] == "| static | 1 of 2 | 2.0 | 2.00 |"


def test_engines_are_means_over_all_batches() -> None:
    batch = {"config": "vlm-s", "mix": "web", "microbatches": 16, "memory": "given", "cp_sat": True}
    rows = [
        {**batch, "seed": 0, "engine": "start", "gain_us": 0, "start_us": 1000, "makespan_us": 900},
        {**batch, "seed": 0, "engine": "annealing", "gain_us": 100, "start_us": 1000, "makespan_us": 900},
        {**batch, "seed": 1, "engine": "start", "gain_us": 0, "start_us": 1000, "makespan_us": 1000},
    ]
    lines = _lines("engines", Result(suites={"engines": suite(rows)}))
    assert "| annealing | 5.0%, helped on 1 of 2 | - |" in lines
    assert "| all | 5.0% | - |" in lines
    assert "| CP-SAT, all of it | 0.0%, helped on 0 of 2 | - |" in lines


def test_engines_of_cp_sat_are_added_up() -> None:
    batch = {"config": "vlm-s", "mix": "web", "seed": 0, "microbatches": 16, "memory": "given", "cp_sat": True}
    whole = {"start_us": 1000, "makespan_us": 880}
    rows = [
        {**batch, "engine": engine, "gain_us": gain_us, **whole}
        for engine, gain_us in (("start", 0), ("CP-SAT memory", 100), ("CP-SAT window", 20))
    ]
    lines = _lines("engines", Result(suites={"engines": suite(rows)}))
    assert "| CP-SAT, all of it | 12.0%, helped on 1 of 1 | - |" in lines


def test_growth_says_what_does_not_fit() -> None:
    rows = [row("vlm-s", 0, "ours", 1000, ranks=4)]
    rows.append({**rows[0], "ranks": 2, "fits": False})
    lines = _lines("growth", Result(suites={"growth": suite(rows)}))
    assert lines[2:] == [
        "| 16 microbatches, 4 ranks | 1,000 | 2,500 | 3,000 | 2.0% | 4.0% |",
        "| 16 microbatches, 2 ranks | does not fit | - | - | - | - |",
    ]


def test_progress_is_over_the_long_runs_best() -> None:
    batch = {"config": "vlm-s", "mix": "web", "seed": 0, "microbatches": 26, "size": "1,000 tasks"}
    rows = [
        {**batch, "method": method, "budget_ms": budget, "elapsed_ms": elapsed, "makespan_us": us}
        for method, budget, elapsed, us in (
            ("ours", 1000, 20, 1100),
            ("ours", 1000, 400, 1005),
            ("ours", 60_000, 9000, 1000),
            ("random", 10_000, 30, 1300),
        )
    ]
    lines = _lines("progress", Result(suites={"progress": suite(rows)}))
    head = "| after | 1,000 tasks, ours with 1 s | 1,000 tasks, ours with 60 s | 1,000 tasks, random |"
    assert lines[0] == head
    assert "| 250 ms | +10.0% | - | +30.0% |" in lines
    assert "| 500 ms | +0.5% | - | +30.0% |" in lines
    assert "| within 1% after | 400 ms | 9,000 ms | - |" in lines


def test_mfu_and_large_set_ups() -> None:
    rows = [row("vlm-xl-8", 0, "ours", 1000, mfu=0.45), row("vlm-xl-8", 0, "latency-balanced", 1500, mfu=0.3)]
    result = Result(suites={"large": suite(rows)})
    assert "| latency-balanced | 1.50 (0.300) |" in _lines("large", result)
    assert _lines("mfu", result)[2] == "| vlm-xl-8 | 0.468 | 0.450 | - | - | - | 0.300 | - |"


def test_latency_has_a_column_for_each_instance() -> None:
    batch = {"config": "vlm-s", "mix": "web", "seed": 0}
    rows = [
        {**batch, "microbatches": 26, "tasks": 1012, "what": "decode_us", "value": 31.25},
        {**batch, "microbatches": 64, "tasks": 2500, "what": "first_plan_ms", "value": 88.0},
    ]
    lines = _lines("latency", Result(suites={"latency": suite(rows)}))
    assert lines == [
        "| what | 1,012 tasks, 26 microbatches | 2,500 tasks, 64 microbatches |",
        "| --- | --- | --- |",
        "| decode (us) | 31.2 | - |",
        "| first plan (ms) | - | 88.0 |",
    ]
