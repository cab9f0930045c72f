"""Shows that ``dip plan`` writes plans and a table, and explains what cannot be planned: exit 2 or 3, no traceback."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import corners
import pytest
from dip.planner.v1 import planner_pb2 as pb
from google.protobuf import json_format

from planner_service.check import check_plan
from planner_service.commands.files import message_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def write(tmp_path: Path) -> Callable[[pb.PlanRequest], Path]:
    """Return a function that writes a request to a file."""

    def run(request: pb.PlanRequest) -> Path:
        (tmp_path / "request.json").write_text(message_text(request))
        return tmp_path / "request.json"

    return run


def valid_plan(text: str, request: pb.PlanRequest) -> pb.Plan:
    plan = json_format.Parse(text, pb.Plan())
    result = check_plan(request, plan)
    assert (result.faults, result.warnings) == ((), ())
    return plan


def test_a_search_within_its_budget(dip: Callable[..., Any], write: Callable[..., Path], tmp_path: Path) -> None:
    request = corners.two_encoders()
    ran = dip("plan", write(request), "-o", tmp_path / "plan.json", "--budget-ms", "100", "--seed", "7")
    assert (ran.code, ran.err) == (0, "")
    plan = valid_plan((tmp_path / "plan.json").read_text(), request)
    assert not plan.fallback
    assert f"{plan.makespan_us:,} us" in ran.out
    assert f"{plan.lower_bound_us:,} us" in ran.out
    assert all(step.engine in ran.out for step in plan.search.steps)


@pytest.mark.parametrize("name", ["loaded_partition", "split_backward_in_little_memory"])
def test_the_fallback(dip: Callable[..., Any], write: Callable[..., Path], tmp_path: Path, name: str) -> None:
    request = corners.FITTING[name]()
    ran = dip("plan", write(request), "-o", tmp_path / "plan.json", "--fallback")
    assert ran.code == 0
    plan = valid_plan((tmp_path / "plan.json").read_text(), request)
    assert plan.fallback
    assert "(the fixed fallback)" in ran.out


def test_standard_output_carries_the_plan_alone(dip: Callable[..., Any], write: Callable[..., Path]) -> None:
    request = corners.loaded_partition()
    ran = dip("plan", write(request), "-o", "-", "--fallback")
    valid_plan(ran.out, request)
    assert "makespan" in ran.err


def test_an_invalid_request_names_every_field(dip: Callable[..., Any], write: Callable[..., Path]) -> None:
    request = corners.one_microbatch()
    request.job.model.modules[0].layers[0].cost.points[1].units = -4
    request.batch.microbatches[0].samples[0].instances["language"].units[0] = 0
    ran = dip("plan", write(request), "-o", "-")
    assert (ran.code, ran.out) == (2, "")
    assert "request.json breaks the contract" in ran.err
    assert "job.model.modules[0].layers[0].cost.points[1].units: is -4" in ran.err
    assert 'batch.microbatches[0].samples[0].instances["language"].units[0]: is 0' in ran.err


@pytest.mark.parametrize("name", corners.CANNOT_FIT)
@pytest.mark.parametrize("options", [(), ("--fallback",)], ids=["search", "fallback"])
def test_a_batch_that_cannot_fit(
    dip: Callable[..., Any], write: Callable[..., Path], name: str, options: tuple[str, ...]
) -> None:
    request = corners.CANNOT_FIT[name]()
    ran = dip("plan", write(request), "-o", "-", *options)
    assert (ran.code, ran.out) == (3, "")
    assert "cannot fit: rank " in ran.err
    assert str(request.job.cluster.memory_bytes[0]) in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is not JSON"),
        ("[]", "must be an object"),
        ('{"job": {"cluster": {"ranks": "x"}}}', "job.cluster.ranks: is 'x', must be a whole number"),
        ('{"unknown": 1}', "unknown: is no field of PlanRequest"),
        ("{}", "job.model.modules: is empty"),
    ],
)
def test_a_file_that_holds_no_request(dip: Callable[..., Any], tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "request.json").write_text(text)
    ran = dip("plan", tmp_path / "request.json", "-o", "-")
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--budget-ms", "0"), "--budget-ms is 0, must be from 1"),
        (("--budget-ms", str(2**70)), "--budget-ms is"),
        (("--budget-ms", "999999999999"), "job.options.budget_ms: is 999999999999"),
        (("--seed", "-1"), "--seed is -1, must be from 0"),
        (("--budget-ms", "soon"), "invalid int value: 'soon'"),
    ],
)
def test_options_that_cannot_be(
    dip: Callable[..., Any], write: Callable[..., Path], options: tuple[str, ...], says: str
) -> None:
    ran = dip("plan", write(corners.one_microbatch()), "-o", "-", *options)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err


def test_a_plan_that_cannot_be_written(dip: Callable[..., Any], write: Callable[..., Path]) -> None:
    ran = dip("plan", write(corners.loaded_partition()), "-o", "/does/not/exist/plan.json", "--fallback")
    assert ran.code == 2
    assert "cannot write /does/not/exist/plan.json" in ran.err
