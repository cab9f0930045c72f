"""Pictures of a report. They need matplotlib."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

from planner_service.bench.case import GIVEN
from planner_service.bench.ours import OURS, OURS_WHOLE
from planner_service.bench.report.against import distinct
from planner_service.bench.report.query import by_batch, gains, median, number, pick
from planner_service.bench.report.speed import budgets_ms, long_run_us

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from matplotlib.axes import Axes

    from planner_service.bench.result import Result

TICKS = (0, 0.5, 1, 2, 5, 10, 20, 50, 100)
INCHES = (9.0, 4.2)
DOTS_PER_INCH = 110
COLOURS = [f"C{i}" for i in range(10)] + ["#1b2a41", "#8c6d31", "#9edae5", "#c7c7c7"]
LINES = ("-", "--", ":")
"""Of different sizes in one picture."""


def draw_all(result: Result, folder: Path, beside: Path) -> dict[str, str]:
    """Draw what there are results for.

    Parameters
    ----------
    result
        What was measured.
    folder
        Where pictures go, as ``bench-NAME.png``.
    beside
        Folder of the report that will show them.

    Returns
    -------
    dict of str
        Path from the report, by the table that a picture belongs to.
    """
    from matplotlib.figure import Figure

    drawn: dict[str, str] = {}
    for name, (suite, draw) in PICTURES.items():
        if not result.rows(suite):
            continue
        figure = Figure(figsize=INCHES, layout="constrained")
        draw(result, figure.add_subplot())
        path = folder / f"bench-{name}.png"
        # no date inside: the same results make the same file
        figure.savefig(path, dpi=DOTS_PER_INCH, metadata={"Software": None})
        drawn[name] = os.path.relpath(path, beside)
    return drawn


def _baselines(result: Result, axes: Axes) -> None:
    """Bars of the makespans over ours."""
    rows = pick(result.rows("paper"), memory=GIVEN)
    configs = distinct(rows, "config")
    methods = [method for method in distinct(rows, "method") if method not in (OURS, OURS_WHOLE)]
    width = 0.8 / max(1, len(methods))
    for place, method in enumerate(methods):
        heights = []
        for config in configs:
            of_config = pick(rows, config=config)
            middle = median(gains(by_batch(of_config, method=OURS), by_batch(of_config, method=method)))
            heights.append(1 + middle if middle is not None else 0.0)
        places = [i + place * width for i in range(len(configs))]
        axes.bar(places, heights, width, label=method, color=COLOURS[place % len(COLOURS)])
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set_xticks([i + 0.4 - width / 2 for i in range(len(configs))], configs)
    axes.set_ylabel("makespan over ours")
    axes.legend(fontsize=7, ncols=2)


def _progress(result: Result, axes: Axes) -> None:
    """Steps of the best schedule over time."""
    rows = result.rows("progress")
    for size, line in zip(distinct(rows, "size"), LINES, strict=False):
        best_us = long_run_us(result, size)
        for place, method in enumerate(distinct(rows, "method")):
            budget_ms = max(budgets_ms(result, size, method), default=0)
            of_run = pick(rows, size=size, method=method, budget_ms=budget_ms)
            if not of_run or not best_us:
                continue
            times = [max(1, number(row, "elapsed_ms")) for row in of_run]
            over = [100 * (number(row, "makespan_us") / best_us - 1) for row in of_run]
            axes.step(
                [*times, budget_ms],
                [*over, over[-1]],
                line,
                where="post",
                color=COLOURS[place],
                label=f"{size}, {method}",
            )
    axes.set_xscale("log")
    axes.set_yscale("symlog", linthresh=1)
    axes.set_ylim(bottom=min(-0.1, axes.dataLim.y0))
    axes.set_yticks(TICKS, [f"{tick:g}" for tick in TICKS])
    axes.set_xlabel("milliseconds of search")
    axes.set_ylabel("% over the best of our longest run")
    axes.legend(fontsize=7)


def _sizes(result: Result, axes: Axes) -> None:
    """Iteration time by the number of images."""
    rows = pick(result.rows("sizes"), fits=True)
    sizes = sorted({number(row, "images") for row in rows})
    times = [median(list(by_batch(rows, images=size).values())) or 0.0 for size in sizes]
    axes.plot(sizes, [time / 1e3 for time in times], marker="o")
    axes.set_xlabel("images in a sub-microbatch, at most")
    axes.set_ylabel("iteration in ms")


def _waves(result: Result, axes: Axes) -> None:
    """Iteration times, and images behind them."""
    rows = result.rows("waves")
    for method in distinct(rows, "method"):
        of_method = pick(rows, method=method)
        seconds = [number(row, "makespan_us") / 1e6 if row["fits"] else math.nan for row in of_method]
        axes.plot([number(row, "iteration") for row in of_method], seconds, label=method)
    of_ours = pick(rows, method=OURS, fits=True)
    images = axes.twinx()
    images.fill_between(
        [number(row, "iteration") for row in of_ours], [number(row, "images") for row in of_ours], color="0.9"
    )
    images.set_ylabel("images of the batch")
    axes.set_zorder(images.get_zorder() + 1)
    axes.patch.set_visible(False)
    axes.set_xlabel("iteration")
    axes.set_ylabel("seconds")
    axes.legend(fontsize=7)


def _growth(result: Result, axes: Axes) -> None:
    """Gap and distance from the ideal as microbatches grow."""
    rows = [row for row in pick(result.rows("growth"), fits=True) if row["ranks"] == 4]
    rows.sort(key=lambda row: number(row, "microbatches"))
    for column, name in (("gap", "over our bound"), ("over_ideal", "over the ideal")):
        shares = [100 * float(row[column] or 0.0) for row in rows]
        axes.plot([number(row, "microbatches") for row in rows], shares, marker="o", label=name)
    axes.set_xscale("log", base=2)
    axes.set_xlabel("microbatches")
    axes.set_ylabel("%")
    axes.legend()


PICTURES: dict[str, tuple[str, Callable[[Result, Axes], None]]] = {
    "baselines": ("paper", _baselines),
    "progress": ("progress", _progress),
    "sizes": ("sizes", _sizes),
    "waves": ("waves", _waves),
    "growth": ("growth", _growth),
}
"""By the table that a picture belongs to: the suite that it is made of, and who draws it."""
