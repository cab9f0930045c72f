"""Tables about our plans and how they are found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner_service.bench.case import CLEARED, GIVEN, HALVED
from planner_service.bench.ours import OURS, OURS_WHOLE
from planner_service.bench.report.against import distinct
from planner_service.bench.report.query import by_batch, key_of, mean, median, number, pick, worst
from planner_service.bench.report.speed import budgets_ms, long_run_us, near_after_ms
from planner_service.bench.report.text import NONE, percent, plain, table
from planner_service.bench.suites.engines import START
from planner_service.bench.suites.latency import DECODE_LIMITED_US, DECODE_US
from planner_service.bench.suites.progress import SEARCH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner_service.bench.case import Row
    from planner_service.bench.result import Result

CP_SAT = "CP-SAT"
"""In the name of all engines that use it."""

MARKS_MS = (25, 50, 100, 250, 500, 1000, 2000, 4000, 10_000, 60_000)
"""When progress is shown."""


def ours_table(result: Result) -> str:
    """Gaps, distances and what plans take, a line for each set-up, memory and kind of backward."""
    rows = result.rows("paper")
    lines = []
    for config in distinct(rows, "config"):
        for memory in (GIVEN, CLEARED, HALVED):
            for method, backward in ((OURS, "split"), (OURS_WHOLE, "whole")):
                of = pick(rows, config=config, memory=memory, method=method, fits=True)
                lines.append((f"{config}, memory {memory}, {backward}", *_ours_cells(of)))
    head = ("set-up, memory limits, backward", "gap", "over ideal", "peak in GB", "tasks", "CPU ms", "ms")
    return table(head, lines)


def _ours_cells(rows: Sequence[Row]) -> list[str]:
    gap, ideal = _values(rows, "gap"), _values(rows, "over_ideal")
    peak = median(_values(rows, "peak_bytes"))
    return [
        _with_worst(gap),
        _with_worst(ideal),
        plain(None if peak is None else peak / 1e9, 1),
        *(plain(median(_values(rows, column))) for column in ("tasks", "cpu_ms", "wall_ms")),
    ]


def _values(rows: Sequence[Row], column: str) -> list[float]:
    return list(by_batch(rows, column).values())


def _with_worst(values: Sequence[float]) -> str:
    return f"{percent(median(values))} ({percent(worst(values))})" if values else NONE


def sizes_table(result: Result) -> str:
    """Iteration time of each size over that of the best one."""
    rows = result.rows("sizes")
    sizes = sorted({number(row, "images") for row in rows if row["fits"]})
    times = {size: median(_values(pick(rows, images=size), "makespan_us")) or 0.0 for size in sizes}
    best = min(times.values(), default=0.0)
    lines = [(str(size), plain(time / 1e3), percent(time / best - 1, signed=True)) for size, time in times.items()]
    return table(("images", "ms", "over the best"), lines)


def progress_table(result: Result) -> str:
    """Best schedule after each time, a column for each size and method."""
    runs = [
        (size, method, budget_ms)
        for size in distinct(result.rows("progress"), "size")
        for method in distinct(result.rows("progress"), "method")
        for budget_ms in _shown_budgets(result, size, method)
    ]
    head = ("after", *(f"{size}, {method}{_budget(method, budget)}" for size, method, budget in runs))
    lines = [(f"{mark:,} ms", *(_after(result, *run, mark) for run in runs)) for mark in MARKS_MS]
    near = [near_after_ms(result, size, budget, method) for size, method, budget in runs]
    lines.append(("within 1% after", *(NONE if ms is None else f"{ms:,} ms" for ms in near)))
    return table(head, lines)


def _shown_budgets(result: Result, size: str, method: str) -> list[int]:
    """Of our runs the longest and that of the middle budgets; of others all."""
    budgets = budgets_ms(result, size, method)
    return [budgets[i] for i in sorted({(len(budgets) - 1) // 2, len(budgets) - 1})] if method == SEARCH else budgets


def _budget(method: str, budget_ms: int) -> str:
    return f" with {budget_ms / 1000:g} s" if method == SEARCH else ""


def _after(result: Result, size: str, method: str, budget_ms: int, mark_ms: int) -> str:
    rows = pick(result.rows("progress"), size=size, method=method, budget_ms=budget_ms)
    found = [number(row, "makespan_us") for row in rows if number(row, "elapsed_ms") <= mark_ms]
    best = long_run_us(result, size)
    return NONE if not found or not best or mark_ms > budget_ms else percent(min(found) / best - 1, signed=True)


def engines_table(result: Result) -> str:
    """Mean gain of each engine, with CP-SAT and without, by memory."""
    rows = result.rows("engines")
    groups = [(memory, cp_sat) for memory in distinct(rows, "memory") for cp_sat in (True, False)]
    engines = [engine for engine in distinct(rows, "engine") if engine != START]
    head = ("engine", *(f"memory {memory}, {'with' if cp_sat else 'without'} CP-SAT" for memory, cp_sat in groups))
    lines = [(engine, *(_gain(pick(rows, memory=m, cp_sat=c), (engine,)) for m, c in groups)) for engine in engines]
    of_cp_sat = tuple(engine for engine in engines if CP_SAT in engine)
    lines.append(("CP-SAT, all of it", *(_gain(pick(rows, memory=m, cp_sat=c), of_cp_sat) for m, c in groups)))
    totals = [_total(pick(rows, memory=memory, cp_sat=cp_sat, engine=START)) for memory, cp_sat in groups]
    return table(head, [*lines, ("all", *totals)])


def _gain(rows: Sequence[Row], engines: Sequence[str]) -> str:
    """Mean gain of some engines together, and on how many batches they had any."""
    batches = {key_of(row) for row in rows}
    if not batches:
        return NONE
    gained = [row for row in pick(rows, engine=tuple(engines)) if number(row, "gain_us") > 0]
    total = sum(number(row, "gain_us") / number(row, "start_us") for row in gained)
    return f"{percent(total / len(batches))}, helped on {len({key_of(row) for row in gained})} of {len(batches)}"


def _total(rows: Sequence[Row]) -> str:
    return percent(mean([1 - number(row, "makespan_us") / number(row, "start_us") for row in rows]))


def growth_table(result: Result) -> str:
    """What plans of each size take, and how good they are."""
    lines = []
    for row in result.rows("growth"):
        cells = [
            f"{number(row, 'microbatches')} microbatches, {number(row, 'ranks')} ranks",
            *(plain(_cell(row, column)) for column in ("tasks", "wall_ms", "cpu_ms")),
            *(percent(_cell(row, column)) for column in ("gap", "over_ideal")),
        ]
        lines.append(cells if row["fits"] else [cells[0], "does not fit", *[NONE] * 4])
    return table(("size", "tasks", "ms", "CPU ms", "gap", "over ideal"), lines)


def _cell(row: Row, column: str) -> float | None:
    value = row.get(column)
    return float(value) if isinstance(value, int | float) else None


def latency_table(result: Result) -> str:
    """Every step, a column for each instance."""
    rows = result.rows("latency")
    sizes = sorted({(number(row, "tasks"), number(row, "microbatches")) for row in rows})
    lines = []
    for what in distinct(rows, "what"):
        unit = "us" if what in (DECODE_US, DECODE_LIMITED_US) else "ms"
        cells = [
            plain(median([float(row["value"] or 0) for row in pick(rows, what=what, tasks=t, microbatches=m)]), 1)
            for t, m in sizes
        ]
        lines.append((f"{what.removesuffix('_' + unit).replace('_', ' ')} ({unit})", *cells))
    head = ("what", *(f"{tasks:,} tasks, {microbatches} microbatches" for tasks, microbatches in sizes))
    return table(head, lines)
