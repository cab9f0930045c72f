"""Shows what ``dip check`` prints and how it exits: 0 for a valid plan, 1 for a faulty one, 2 for bad input."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from dip.planner.v1 import planner_pb2 as pb
from tiny_plan import MAKESPAN_US, PEAKS, tiny_plan, tiny_request

from planner_service.commands.files import message_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def check(dip: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """Return a function that checks one message against another, through files."""

    def run(request: pb.PlanRequest, plan: pb.Plan | pb.PlanResponse, *options: str) -> Any:
        (tmp_path / "request.json").write_text(message_text(request))
        (tmp_path / "plan.json").write_text(message_text(plan))
        return dip("check", tmp_path / "request.json", tmp_path / "plan.json", *options)

    return run


def test_a_valid_plan(check: Callable[..., Any]) -> None:
    ran = check(tiny_request(), tiny_plan())
    assert (ran.code, ran.err) == (0, "")
    figures = json.loads(ran.out)
    assert figures["makespan_us"] == MAKESPAN_US
    assert figures["peak_memory_bytes"] == list(PEAKS)


def test_a_plan_response_is_as_good(check: Callable[..., Any]) -> None:
    assert check(tiny_request(), pb.PlanResponse(plan=tiny_plan())).code == 0


def test_a_faulty_plan(check: Callable[..., Any]) -> None:
    plan = tiny_plan()
    plan.makespan_us += 1
    ran = check(tiny_request(), plan)
    assert ran.code == 1
    assert ran.out.startswith(f"fault: the plan states a makespan of {MAKESPAN_US + 1} us")


def test_many_faults_are_cut_short(check: Callable[..., Any]) -> None:
    plan = tiny_plan()
    for action in list(plan.ranks[0].actions) * 20:
        plan.ranks[0].actions.append(action)
    ran = check(tiny_request(), plan)
    assert ran.code == 1
    assert ran.out.count("fault: ") == 40
    assert "\nand " in ran.out


def test_another_digest_is_a_warning_unless_strict(check: Callable[..., Any]) -> None:
    plan = tiny_plan()
    plan.digest = bytes(32)
    ran = check(tiny_request(), plan)
    assert ran.code == 0
    assert "warning: the digest is " in ran.out
    strict = check(tiny_request(), plan, "--strict")
    assert strict.code == 1
    assert "fault: the digest is " in strict.out


def test_an_invalid_request_names_every_field(check: Callable[..., Any]) -> None:
    request = tiny_request()
    request.job.cluster.ranks = 0
    request.job.options.seed = -1
    ran = check(request, tiny_plan())
    assert (ran.code, ran.out) == (2, "")
    assert "job.cluster.ranks: is 0" in ran.err
    assert "job.options.seed: is -1" in ran.err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not JSON"),
        ("[]", "holds a JSON list"),
        ('{"job": 5}', "job: is 5, must be an object, a JobSpec"),
        ('{"jobs": {}}', "did you mean job?"),
    ],
)
def test_a_request_that_is_none(dip: Callable[..., Any], tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "request.json").write_text(text)
    ran = dip("check", tmp_path / "request.json", tmp_path / "plan.json")
    assert ran.code == 2
    assert says in ran.err


def test_what_is_no_plan_is_faulty(dip: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "request.json").write_text(message_text(tiny_request()))
    (tmp_path / "plan.json").write_text('{"plan": {"ranks": [{"actions": [{"kind": "ACTION_KIND_JUMP"}]}]}}')
    ran = dip("check", tmp_path / "request.json", tmp_path / "plan.json")
    assert ran.code == 1
    assert "ranks[0].actions[0].kind: is 'ACTION_KIND_JUMP', must be one of ACTION_KIND_UNSPECIFIED" in ran.out


@pytest.mark.parametrize("absent", ["request.json", "plan.json"])
def test_a_file_that_is_not_there(dip: Callable[..., Any], tmp_path: Path, absent: str) -> None:
    (tmp_path / "request.json").write_text(message_text(tiny_request()))
    (tmp_path / "plan.json").write_text(message_text(tiny_plan()))
    (tmp_path / absent).unlink()
    ran = dip("check", tmp_path / "request.json", tmp_path / "plan.json")
    assert ran.code == 2
    assert f"{absent}: No such file" in ran.err
