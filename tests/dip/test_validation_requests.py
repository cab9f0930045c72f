"""Shows that every request is checked in all its parts, with paths from its own root."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cases
import corners
import pytest
from dip.errors import InvalidRequestError
from dip.planner.v1 import planner_pb2 as pb
from dip.validation import (
    shown_reason,
    validate_get_job,
    validate_get_plan,
    validate_plan_request,
    validate_register_job,
    validate_report_execution,
    validate_stream_schedules,
    validate_submit_batch,
)
from dip.validation.limits import MAX_REASON_LENGTH

if TYPE_CHECKING:
    from collections.abc import Callable


def violations_of(validate: Callable[..., None], *messages: object) -> dict[str, str]:
    with pytest.raises(InvalidRequestError) as caught:
        validate(*messages)
    return {violation.field: violation.description for violation in caught.value.violations}


def register() -> pb.RegisterJobRequest:
    made = corners.loaded_partition()
    return pb.RegisterJobRequest(
        job_id="vlm", attempt=7, spec=made.job, representative_batch=made.batch, partition=made.partition
    )


def submit() -> pb.SubmitBatchRequest:
    return pb.SubmitBatchRequest(job_id="vlm", attempt=7, iteration=3, batch=corners.one_microbatch().batch)


def stream() -> pb.StreamSchedulesRequest:
    return pb.StreamSchedulesRequest(job_id="vlm", attempt=7, rank=3, first_iteration=12)


def report() -> pb.ReportExecutionRequest:
    compute = pb.Action(kind=pb.ACTION_KIND_FORWARD, module="vision", chunk=2, sub_microbatch=4, end_us=90)
    compute.strategies.add(name="recompute", num_layers=2)
    transfer = pb.Action(
        kind=pb.ACTION_KIND_SEND_ACTIVATION,
        module="vision",
        chunk=3,
        sub_microbatch=4,
        peer=0,
        consumer_module="language",
        consumer_sub_microbatch=6,
        start_us=90,
        end_us=95,
    )
    return pb.ReportExecutionRequest(
        job_id="vlm", attempt=7, rank=3, iteration=12, plan_digest=bytes(32), actions=[compute, transfer]
    )


# ---------------------------------------------------------------- Plan


@pytest.mark.parametrize("name", [*corners.FITTING, *corners.CANNOT_FIT])
def test_requests_of_the_small_cases_are_valid(name: str) -> None:
    validate_plan_request((corners.FITTING | corners.CANNOT_FIT)[name]())


def test_an_empty_plan_request_says_what_it_needs() -> None:
    found = violations_of(validate_plan_request, pb.PlanRequest())
    assert set(found) == {"job.model.modules", "job.cluster.ranks", "batch.microbatches"}


def test_a_plan_request_is_checked_in_all_its_parts() -> None:
    made = corners.loaded_partition()
    made.job.options.seed = -1
    made.batch.microbatches[0].samples[0].instances["language"].units[0] = 0
    made.partition.chunks[0].rank = 9
    assert set(violations_of(validate_plan_request, made)) == {
        "job.options.seed",
        'batch.microbatches[0].samples[0].instances["language"].units[0]',
        "partition.chunks[0].rank",
    }


def test_a_plan_request_with_a_batch_that_overflows_is_refused() -> None:
    made = cases.request(cases.job(), [[{"language": [2**31 - 1]}]])
    made.job.model.modules[1].layers[0].cost.points[2].forward_us = 1e12
    assert "microseconds" in violations_of(validate_plan_request, made)["batch.microbatches"]


# ---------------------------------------------------------------- RegisterJob


def test_a_registration_may_leave_out_batch_and_partition() -> None:
    validate_register_job(register())
    validate_register_job(pb.RegisterJobRequest(job_id="vlm", spec=cases.job()))


def test_a_registration_is_checked_in_all_its_parts() -> None:
    made = register()
    made.attempt = -1
    made.spec.cluster.replicas = -1
    made.representative_batch.microbatches[0].samples[0].instances["language"].units[0] = 0
    made.partition.chunks[0].rank = 9
    assert set(violations_of(validate_register_job, made)) == {
        "attempt",
        "spec.cluster.replicas",
        'representative_batch.microbatches[0].samples[0].instances["language"].units[0]',
        "partition.chunks[0].rank",
    }


# ---------------------------------------------------------------- SubmitBatch, StreamSchedules, ReportExecution


def test_valid_requests_of_a_registered_job_pass() -> None:
    spec = cases.job()
    validate_submit_batch(submit(), spec)
    validate_stream_schedules(stream(), spec)
    validate_report_execution(report(), spec)


@pytest.mark.parametrize(
    ("made", "validate"),
    [
        (submit, validate_submit_batch),
        (stream, validate_stream_schedules),
        (report, validate_report_execution),
    ],
)
@pytest.mark.parametrize(("field", "value"), [("job_id", ""), ("attempt", -1), ("replica", 1), ("replica", -1)])
def test_requests_of_a_job_name_job_attempt_and_replica(
    made: Callable[[], pb.SubmitBatchRequest], validate: Callable[..., None], field: str, value: object
) -> None:
    request = made()
    setattr(request, field, value)
    assert list(violations_of(validate, request, cases.job())) == [field]


def test_a_replica_is_one_of_those_that_the_job_has() -> None:
    spec = cases.job()
    spec.cluster.replicas = 2
    request = submit()
    request.replica = 1
    validate_submit_batch(request, spec)
    request.replica = 2
    assert "from 0 to 1" in violations_of(validate_submit_batch, request, spec)["replica"]


def test_a_submitted_batch_is_checked() -> None:
    request = submit()
    request.iteration = -1
    request.batch.microbatches[0].samples[0].instances["language"].units[0] = 0
    assert set(violations_of(validate_submit_batch, request, cases.job())) == {
        "iteration",
        'batch.microbatches[0].samples[0].instances["language"].units[0]',
    }
    request = submit()
    request.batch.ClearField("microbatches")
    assert list(violations_of(validate_submit_batch, request, cases.job())) == ["batch.microbatches"]


@pytest.mark.parametrize(("field", "value"), [("rank", 4), ("rank", -1), ("first_iteration", -1)])
def test_a_stream_names_a_rank_and_an_iteration(field: str, value: int) -> None:
    request = stream()
    setattr(request, field, value)
    assert list(violations_of(validate_stream_schedules, request, cases.job())) == [field]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rank", 4),
        ("iteration", -1),
        ("plan_digest", b"short"),
        ("plan_digest", b""),
        ("peak_memory_bytes", -1),
        ("stalled_us", -1),
        ("fallback_reason", "not a fallback"),
    ],
)
def test_a_broken_field_of_a_report_is_named(field: str, value: object) -> None:
    request = report()
    setattr(request, field, value)
    assert list(violations_of(validate_report_execution, request, cases.job())) == [field]


def test_a_report_of_the_fallback_may_have_no_digest() -> None:
    request = report()
    request.plan_digest, request.fallback = b"", True
    validate_report_execution(request, cases.job())


def test_a_report_is_not_refused_for_its_reason() -> None:
    request = report()
    request.plan_digest, request.fallback, request.fallback_reason = b"", True, "\n\x1b[31m" * 1_000
    validate_report_execution(request, cases.job())


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("", ""),
        ("the plan is late: 200 ms", "the plan is late: 200 ms"),
        ("zu spät\n\tim Zug", "zu spät im Zug"),
        ("\x1b[31mred\u202e", r"\x1b[31mred\u202e"),
        ("x" * 1_000, "x" * MAX_REASON_LENGTH),
        ("\0" * MAX_REASON_LENGTH, r"\x00" * (MAX_REASON_LENGTH // 4)),
    ],
)
def test_a_reason_is_shown_in_one_printable_line(reason: str, shown: str) -> None:
    assert shown_reason(reason) == shown


@pytest.mark.parametrize(
    ("field", "value"),
    [("recent_iterations", -1), ("recent_iterations", 65), ("replica", 1), ("replica", -1), ("last_iteration", -1)],
)
def test_a_question_for_iterations_is_checked(field: str, value: int) -> None:
    request = pb.GetJobRequest(job_id="vlm", recent_iterations=64, replica=0, last_iteration=0)
    validate_get_job(request, cases.job())
    validate_get_job(pb.GetJobRequest(job_id="vlm"), cases.job())
    setattr(request, field, value)
    assert list(violations_of(validate_get_job, request, cases.job())) == [field]


@pytest.mark.parametrize(
    ("action", "field", "value"),
    [
        (0, "kind", 0),
        (0, "kind", 99),
        (0, "module", "audio"),
        (0, "chunk", 8),
        (0, "chunk", -1),
        (0, "sub_microbatch", -1),
        (0, "start_us", -5),
        (0, "end_us", -1),
        (1, "start_us", 96),
        (1, "peer", 3),
        (1, "peer", 4),
        (1, "consumer_module", ""),
        (1, "consumer_chunk", 12),
        (1, "consumer_sub_microbatch", -1),
    ],
)
def test_a_broken_field_of_a_reported_action_is_named(action: int, field: str, value: object) -> None:
    request = report()
    setattr(request.actions[action], field, value)
    named = "end_us" if field == "start_us" and action else field
    assert f"actions[{action}].{named}" in violations_of(validate_report_execution, request, cases.job())


@pytest.mark.parametrize(("field", "value"), [("name", "forget"), ("num_layers", 0), ("num_layers", 99)])
def test_a_broken_strategy_of_a_reported_action_is_named(field: str, value: object) -> None:
    request = report()
    setattr(request.actions[0].strategies[0], field, value)
    found = violations_of(validate_report_execution, request, cases.job())
    assert list(found) == [f"actions[0].strategies[0].{field}"]


def test_a_plan_is_looked_up_by_a_replica_of_the_job_and_an_iteration_from_0_on() -> None:
    spec = corners.one_microbatch().job
    spec.cluster.replicas = 2
    validate_get_plan(pb.GetPlanRequest(job_id="vlm", replica=1, iteration=0), spec)
    wrong = pb.GetPlanRequest(job_id="vlm", replica=2, iteration=-1)
    assert set(violations_of(validate_get_plan, wrong, spec)) == {"replica", "iteration"}
