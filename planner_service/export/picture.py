"""A plan as a picture: rank by rank, planned above measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner_service.export.timelines import measured_timeline, planned_timeline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dip.planner.v1 import planner_pb2 as pb
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from planner_service.export.timelines import Timeline

# Light for forwards, dark for backwards; pairs that stay apart for colour-blind eyes and in grey.
COLOURS = (("#9ecae1", "#2171b5"), ("#fdbe85", "#d94801"), ("#a1d99b", "#238b45"), ("#dadaeb", "#6a51a3"))
IDLE = "#f0f0f0"
ROW_INCHES, LEAST_LABELLED_SHARE = 0.55, 0.012


class PictureError(RuntimeError):
    """No picture can be drawn here; the message says what to install."""


def draw_plan(
    plan: pb.Plan, reports: Sequence[pb.ReportExecutionRequest] = (), *, title: str = "", width_inches: float = 13.0
) -> Figure:
    """Draw a plan, and below it what its ranks measured.

    Parameters
    ----------
    plan, reports
        As in `chrome_trace`.
    title
        Stands above everything.
    width_inches
        Of the picture; its height follows from the number of ranks.

    Returns
    -------
    Figure
        For ``figure.savefig(path)``: PNG, SVG or PDF by the path's ending.

    Raises
    ------
    PictureError
        If matplotlib is not installed.
    ValueError
        If the reports are not of this plan.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PictureError("pictures need matplotlib: pip install 'dip-planner[demo]'") from error
    panels = [("planned", planned_timeline(plan))]
    if reports:
        panels.append(("measured", measured_timeline(plan, reports)))
    modules = list(dict.fromkeys(chunk.module for chunk in plan.partition.chunks))
    rows = len(plan.ranks) * len(panels)
    figure = Figure(figsize=(width_inches, 1.4 + rows * ROW_INCHES + 0.45 * len(panels)), layout="constrained")
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    end_us = max(timeline.makespan_us for _, timeline in panels)
    for (name, timeline), ax in zip(panels, axes, strict=True):
        _draw_panel(ax, name, timeline, modules, end_us)
    axes[-1].set_xlabel("milliseconds since the iteration's start; numbers are microbatches")
    figure.legend(handles=_legend(modules), loc="outside lower center", ncols=2 * len(modules) + 1, frameon=False)
    if title:
        figure.suptitle(title, fontweight="bold")
    return figure


def _draw_panel(ax: Axes, name: str, timeline: Timeline, modules: Sequence[str], end_us: int) -> None:
    from matplotlib.patches import Rectangle

    for rank in range(timeline.ranks):
        ax.add_patch(Rectangle((0, rank - 0.4), timeline.makespan_us / 1000, 0.8, facecolor=IDLE, linewidth=0))
    for span in timeline.spans:
        light, dark = COLOURS[modules.index(span.module) % len(COLOURS)]
        start, length = span.start_us / 1000, (span.end_us - span.start_us) / 1000
        ax.add_patch(
            Rectangle(
                (start, span.rank - 0.4),
                length,
                0.8,
                facecolor=light if span.is_forward else dark,
                edgecolor="white",
                linewidth=0.5,
            )
        )
        if length * 1000 > LEAST_LABELLED_SHARE * end_us:
            ax.text(
                start + length / 2,
                span.rank,
                str(span.microbatch),
                ha="center",
                va="center",
                fontsize=8,
                color="black" if span.is_forward else "white",
            )
    ax.set_xlim(0, end_us / 1000)
    ax.set_ylim(timeline.ranks - 0.5, -0.5)
    ax.set_yticks(range(timeline.ranks), [f"rank {rank}" for rank in range(timeline.ranks)])
    ax.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    ax.set_title(
        f"{name}: {timeline.makespan_us / 1000:.1f} ms, bubble {timeline.bubble_share:.1%}", loc="left", fontsize=10
    )


def _legend(modules: Sequence[str]) -> list[object]:
    from matplotlib.patches import Patch

    handles: list[object] = []
    for number, module in enumerate(modules):
        light, dark = COLOURS[number % len(COLOURS)]
        handles += [Patch(color=light, label=f"{module} forward"), Patch(color=dark, label=f"{module} backward")]
    return [*handles, Patch(color=IDLE, label="idle")]
