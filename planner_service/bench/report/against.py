"""Tables that compare ours with others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner_service.bench.case import GIVEN
from planner_service.bench.ours import OURS, OURS_WHOLE
from planner_service.bench.report.query import by_batch, gains, median, number, pick
from planner_service.bench.report.text import NONE, percent, plain, ratio, table
from planner_service.bench.suites.memory import AT_OPTIMUS_PEAK, OPTIMUS
from planner_service.bench.suites.steps import STEPS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from planner_service.bench.case import Row
    from planner_service.bench.result import Result

STEP_NAMES = {
    "megatron-interleaved": "Megatron interleaved, by weights",
    "separated-interleaved": "+ partition: segments of its own for each module",
    "interleaving": "+ interleaving: our partition and sizes, list scheduling",
    "order": "+ order: local search",
    "memory": "+ memory: CP-SAT",
    "split": "+ split backward",
}


def distinct(rows: Iterable[Row], column: str) -> list[str]:
    """Values of a column in the order in which they come."""
    return list(dict.fromkeys(str(row[column]) for row in rows))


def baselines_table(result: Result) -> str:
    """Makespans over ours, a line for each method and a column for each set-up."""
    rows = pick(result.rows("paper"), memory=GIVEN)
    configs = distinct(rows, "config")
    methods = [method for method in distinct(rows, "method") if method != OURS]
    cells = {(method, config): _over_ours(rows, method, config) for method in methods for config in configs}
    best = {
        config: min((median for m in methods if m != OURS_WHOLE and (median := cells[m, config][0])), default=None)
        for config in configs
    }
    lines = [
        (method, *(_bold(cells[method, config][1], cells[method, config][0] == best[config]) for config in configs))
        for method in methods
    ]
    strongest = [_strongest(cells, methods, config) for config in configs]
    return table(("makespan over ours", *configs), [*lines, ("the strongest", *strongest)])


def _strongest(cells: Mapping[tuple[str, str], tuple[float | None, str]], methods: Sequence[str], config: str) -> str:
    """Name and ratio of the best of all other methods that fit on all batches."""
    fitting = {m: value for m in methods if m != OURS_WHOLE and (value := cells[m, config][0]) is not None}
    if not fitting:
        return NONE
    name = min(fitting, key=lambda method: fitting[method])
    return f"{name}: {ratio(fitting[name])}"


def _over_ours(rows: Sequence[Row], method: str, config: str) -> tuple[float | None, str]:
    """Median ratio where it fits on all batches (None else), and what the table says."""
    ours = by_batch(rows, method=OURS, config=config)
    theirs = by_batch(rows, method=method, config=config)
    many = len(pick(rows, method=method, config=config))
    ratios = [1 + gain for gain in gains(ours, theirs)]
    middle = median(ratios)
    if not ratios or middle is None:
        return None, f"does not fit ({len(theirs)} of {many})" if many else NONE
    if len(ratios) < many:
        return None, f"{ratio(middle)} ({len(ratios)} of {many})"
    return middle, ratio(middle)


def _bold(text: str, is_bold: bool) -> str:
    return f"**{text}**" if is_bold and text != NONE else text


def steps_table(result: Result) -> str:
    """Iteration times of the steps, a column for each set-up."""
    rows = result.rows("steps")
    configs = distinct(rows, "config")
    lines = []
    for method in STEPS:
        cells = []
        for config in configs:
            of_config = pick(rows, config=config)
            here = by_batch(of_config, method=method)
            over = median([gain for gain in gains(here, by_batch(of_config, method=STEPS[0]))])
            time_us = median(list(here.values()))
            seconds = plain(None if time_us is None else time_us / 1e6, 2)
            cells.append(seconds if over is None or method == STEPS[0] else f"{seconds} ({percent(over, signed=True)})")
        lines.append((STEP_NAMES[method], *cells))
    return table(("step", *configs), lines)


def memory_table(result: Result) -> str:
    """Peaks and times of Megatron, Optimus-like and ours."""
    rows = result.rows("memory")
    ours = by_batch(rows, method=OURS, memory=GIVEN)
    lines = []
    for name, method, memory in (
        ("ours, memory as given", OURS, GIVEN),
        ("ours, on each rank at most Optimus-like's peak", OURS, AT_OPTIMUS_PEAK),
        ("Optimus-like", OPTIMUS, GIVEN),
        ("Megatron interleaved", "megatron-interleaved", GIVEN),
    ):
        peak = median(list(by_batch(rows, "peak_bytes", method=method, memory=memory).values()))
        over = median([1 + gain for gain in gains(ours, by_batch(rows, method=method, memory=memory))])
        lines.append((name, plain(None if peak is None else peak / 1e9, 1), ratio(over)))
    return table(("method", "peak in GB", "time over ours"), lines)


def mfu_table(result: Result) -> str:
    """Utilisation of ours and the best baselines, a line for each set-up."""
    rows = [*pick(result.rows("paper"), memory=GIVEN), *result.rows("large")]
    configs = distinct(rows, "config")
    methods = (OURS, OURS_WHOLE, "paper", "torch-zbv-zero-bubble", "latency-balanced", "megatron-interleaved")
    lines = []
    for config in configs:
        of_config = pick(rows, config=config)
        cells = [_share(median(list(by_batch(of_config, "mfu", method=method).values()))) for method in methods]
        lines.append((config, _share(_ideal_mfu(of_config)), *cells))
    return table(("set-up", "the ideal", *methods), lines)


def _ideal_mfu(rows: Sequence[Row]) -> float | None:
    """Utilisation if no rank ever idled and nothing was recomputed: what costs alone allow."""
    reached, over = by_batch(rows, "mfu", method=OURS), by_batch(rows, "over_ideal", method=OURS)
    return median([reached[key] * (1 + over[key]) for key in reached if key in over])


def _share(value: float | None) -> str:
    return NONE if value is None else f"{value:.3f}"


def waves_table(result: Result) -> str:
    """Time under each method, of the iterations that fit its memory."""
    rows = result.rows("waves")
    lines = []
    for method in distinct(rows, "method"):
        fitting, total_us, ours_us = waves_totals(result, method)
        over = ratio(total_us / ours_us if ours_us else None)
        lines.append((method, f"{fitting} of {len(pick(rows, method=method))}", plain(total_us / 1e6, 1), over))
    return table(("method", "iterations that fit", "their seconds", "over ours on the same"), lines)


def waves_totals(result: Result, method: str) -> tuple[int, int, int]:
    """How many iterations fit under a method, and their time in microseconds under it and under ours."""
    rows = result.rows("waves")
    ours = {row["iteration"]: number(row, "makespan_us") for row in pick(rows, method=OURS, fits=True)}
    theirs = {row["iteration"]: number(row, "makespan_us") for row in pick(rows, method=method, fits=True)}
    both = ours.keys() & theirs.keys()
    return len(theirs), sum(theirs[i] for i in both), sum(ours[i] for i in both)


def large_table(result: Result) -> str:
    """Makespans over ours and utilisation, a column for each large set-up."""
    rows = result.rows("large")
    configs = distinct(rows, "config")
    lines = [(method, *(_large(rows, method, config) for config in configs)) for method in distinct(rows, "method")]
    return table(("makespan over ours (MFU)", *configs), lines)


def _large(rows: Sequence[Row], method: str, config: str) -> str:
    of_config = pick(rows, config=config)
    over = median(gains(by_batch(of_config, method=OURS), by_batch(of_config, method=method)))
    mfu = median(list(by_batch(of_config, "mfu", method=method).values()))
    return NONE if over is None else f"{ratio(1 + over)} ({_share(mfu)})"
