"""Shows what `dip export` writes, and what it says to mistakes."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest
from dip.planner.v1 import planner_pb2 as pb
from export_cases import planned_request, reports_of

from planner_service.cli import main
from planner_service.commands.files import message_text

if TYPE_CHECKING:
    from pathlib import Path

    from google.protobuf.message import Message


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    return write(tmp_path / "plan.json", planned_request()[1])


def write(path: Path, message: Message) -> Path:
    path.write_text(message_text(message), encoding="utf-8")
    return path


def test_trace_and_picture_of_a_plan(plan_file: Path, tmp_path: Path) -> None:
    trace, picture = tmp_path / "trace.json", tmp_path / "plan.svg"
    assert main(["export", str(plan_file), "--trace", str(trace), "--picture", str(picture)]) == 0
    assert {event["pid"] for event in json.loads(trace.read_text())["traceEvents"]} == {1}
    assert "<svg" in picture.read_text()


def test_executed_iterations_are_shown_beside_their_plan(plan_file: Path, tmp_path: Path) -> None:
    request, plan = planned_request()
    executed = write(tmp_path / "run.json", pb.GetPlanResponse(request=request, plan=plan, reports=reports_of(plan)))
    trace = tmp_path / "trace.json"
    assert main(["export", str(plan_file), "--executed", str(executed), "--trace", str(trace)]) == 0
    assert {event["pid"] for event in json.loads(trace.read_text())["traceEvents"]} == {1, 2}


def test_reports_of_another_plan_are_refused(
    plan_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reports = reports_of(planned_request()[1])
    reports[1].plan_digest = bytes(32)
    executed = write(tmp_path / "run.json", pb.GetPlanResponse(reports=reports))
    assert main(["export", str(plan_file), "--executed", str(executed), "--trace", str(tmp_path / "t.json")]) == 2
    assert "report of rank 1" in capsys.readouterr().err
    assert not (tmp_path / "t.json").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give --trace, --picture or both"),
        (["--picture", "plan.xyz"], "cannot write plan.xyz"),
        (["--picture", "missing/plan.png"], "cannot write missing/plan.png"),
    ],
)
def test_mistakes_are_explained(
    plan_file: Path,
    arguments: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(plan_file), *arguments]) == 2
    assert said in capsys.readouterr().err


def test_without_matplotlib_it_says_what_to_install(
    plan_file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(["export", str(plan_file), "--picture", "plan.png"]) == 2
    assert "dip-planner[demo]" in capsys.readouterr().err
