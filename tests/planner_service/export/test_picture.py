"""Shows that pictures hold a bar for each compute action, a panel for plan and measurement, and a readable refusal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from export_cases import planned_request, reports_of

from planner_service.export.picture import IDLE, PictureError, draw_plan
from planner_service.export.timelines import planned_timeline

if TYPE_CHECKING:
    from pathlib import Path


def test_planned_stands_above_measured_with_a_bar_for_each_action() -> None:
    from matplotlib.colors import to_rgba

    _, plan = planned_request()
    figure = draw_plan(plan, reports_of(plan, late_us=2000), title="a plan")
    titles = [ax.get_title(loc="left") for ax in figure.axes]
    assert [title.split(":")[0] for title in titles] == ["planned", "measured"]
    spans = len(planned_timeline(plan).spans)
    for ax in figure.axes:
        colours = [patch.get_facecolor() for patch in ax.patches]
        assert len(colours) - colours.count(to_rgba(IDLE)) == spans
        assert colours.count(to_rgba(IDLE)) == len(plan.ranks)
        assert [label.get_text() for label in ax.get_yticklabels()] == [f"rank {rank}" for rank in range(4)]
    assert figure.axes[0].get_xlim() == figure.axes[1].get_xlim()
    assert [text.get_text() for text in figure.legends[0].get_texts()][-1] == "idle"


def test_pictures_are_written_in_usual_formats(tmp_path: Path) -> None:
    _, plan = planned_request()
    for ending, start in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")):
        path = tmp_path / f"plan.{ending}"
        draw_plan(plan).savefig(path)
        assert path.read_bytes().startswith(start)


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(PictureError, match=r"pip install 'dip-planner\[demo\]'"):
        draw_plan(planned_request()[1])
