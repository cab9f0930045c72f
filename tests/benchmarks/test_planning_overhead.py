"""Shows that the steps that are measured make a whole valid plan, of as many tasks as is said."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from dip.fallback import fallback_plan
from dip.planner.v1 import planner_pb2 as pb

from benchmarks.planning_overhead import main
from planner_service.bench import overhead
from planner_service.bench.overhead import INSTANCES, Steps
from planner_service.check import check_plan

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STEPS = ["parse", "validate", "job", "parts", "work", "edges", "graph", "bound", "lower", "serialize"]


@pytest.mark.parametrize("name", list(INSTANCES))
def test_the_steps_make_a_valid_plan_of_about_2500_tasks(name: str) -> None:
    request = INSTANCES[name].request(seed=0)
    steps = Steps()
    plan = pb.Plan.FromString(steps.plan(request.SerializeToString()))
    checked = check_plan(request, plan)
    assert not checked.faults
    assert checked.figures is not None
    assert 2400 <= checked.figures.tasks <= 2600
    assert list(steps.milliseconds) == STEPS
    assert len(request.batch.microbatches) == int(name)


def test_the_result_is_printed_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planner is not waited for once it has handed out a plan."""

    def plan(request: pb.PlanRequest, *, on_plan: Callable[[pb.Plan], None]) -> None:
        on_plan(fallback_plan(request.job, request.partition, request.batch))
        pytest.fail("the search went on")

    monkeypatch.setattr(overhead, "make_plan", plan)
    assert main(["--instances", "16", "--rounds", "1", "--json", str(tmp_path / "out.json")]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result == json.loads((tmp_path / "out.json").read_text())
    measured = result["instances"]["16"]
    assert 0 < measured["steps_ms"]["lower"] < measured["outside_search_ms"]
    assert measured["outside_search_ms"] == pytest.approx(sum(measured["steps_ms"].values()), abs=0.1)
    assert measured["first_plan_ms"] > 0
    assert measured["fixed_schedule_ms"] > 0
