"""A small result of `dip bench` with figures that are easy to check by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner_service.bench.result import Result, SuiteResult

if TYPE_CHECKING:
    from planner_service.bench.case import Row

SETTINGS = {
    "configs": ["vlm-s", "t2v-s"],
    "mixes": ["web"],
    "seeds": [0, 1, 2],
    "microbatches": 16,
    "budget_ms": 1000,
    "cores": 2,
    "baselines": [],
    "jobs": 1,
}


def row(config: str, seed: int, method: str, makespan_us: int, **more: str | float | bool) -> Row:
    """Row of a plan that fits its memory as given, 2% over its bound and 4% over the ideal."""
    return {
        "config": config,
        "mix": "web",
        "seed": seed,
        "microbatches": 16,
        "memory": "given",
        "method": method,
        "fits": True,
        "makespan_us": makespan_us,
        "bound_us": round(makespan_us / 1.02),
        "gap": 0.02,
        "over_ideal": 0.04,
        "peak_bytes": 70_000_000_000,
        "tasks": 1000,
        "mfu": 0.4,
        "cpu_ms": 3000,
        "wall_ms": 2500,
        "fault": "",
        **more,
    }


def misfit(config: str, seed: int, method: str) -> Row:
    """Row of a method that does not fit."""
    return {
        "config": config,
        "mix": "web",
        "seed": seed,
        "microbatches": 16,
        "memory": "given",
        "method": method,
        "fits": False,
        "why": "rank 0 needs more",
        "fault": "",
    }


def paper_rows() -> list[Row]:
    """On VLM-S three batches, on T2V-S one. Megatron takes 3 times as long, and does not fit one of the batches."""
    rows = [row("t2v-s", 0, "ours", 1000), row("t2v-s", 0, "megatron-interleaved", 2000)]
    for seed, ours_us in enumerate((1000, 2000, 3000)):
        rows += [
            row("vlm-s", seed, "ours", ours_us),
            row("vlm-s", seed, "ours", ours_us, memory="cleared", over_ideal=0.01 * (1 + seed)),
            row("vlm-s", seed, "ours-whole", round(1.05 * ours_us)),
            row("vlm-s", seed, "paper", round(1.2 * ours_us)),
            row("vlm-s", seed, "paper-tuned", round(1.155 * ours_us)),
            row("vlm-s", seed, "torch-zbv-zero-bubble", round(1.4 * ours_us)),
            row("vlm-s", seed, "torch-dual-pipe-v", round(1.5 * ours_us)),
        ]
        rows.append(
            row("vlm-s", seed, "megatron-interleaved", 3 * ours_us)
            if seed
            else misfit("vlm-s", seed, "megatron-interleaved")
        )
    return rows


def suite(rows: list[Row], **more: tuple[str, ...]) -> SuiteResult:
    """Result of a suite."""
    return SuiteResult(
        settings=SETTINGS,
        machine={"cores": 2.0, "of_cores": 2, "kind": "x86_64"},
        versions={"python": "3.11.9", "dip-planner": "0.1.0"},
        seconds=12.5,
        rows=tuple(rows),
        **more,
    )


def small_result() -> Result:
    """Result of the suite paper alone."""
    return Result(suites={"paper": suite(paper_rows())})
