"""Shows that no request makes validation raise anything but InvalidRequestError, or passes sums that overflow."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import corners
from any_field import change_any_field
from dip.costs import LayerTable
from dip.errors import InvalidRequestError
from dip.planner.v1 import planner_pb2 as pb
from dip.validation import (
    validate_plan_request,
    validate_register_job,
    validate_report_execution,
    validate_stream_schedules,
    validate_submit_batch,
)
from dip.validation.limits import MAX_TOTAL_BYTES, MAX_TOTAL_US
from hypothesis import given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable


@settings(max_examples=400, deadline=None)
@given(
    name=st.sampled_from(sorted(corners.FITTING)),
    seed=st.integers(0, 2**32),
    changes=st.integers(1, 6),
)
def test_mutated_plan_requests_raise_nothing_else(name: str, seed: int, changes: int) -> None:
    request, rng = corners.FITTING[name](), random.Random(seed)
    for _ in range(changes):
        change_any_field(request, rng)
    if passes(lambda: validate_plan_request(request)):
        assert_no_overflow(request)


def passes(validate: Callable[[], None]) -> bool:
    """Whether a request is valid; any error but that of an invalid one fails the test."""
    try:
        validate()
    except InvalidRequestError as error:
        return not all(violation.description for violation in error.violations)
    return True


def assert_no_overflow(request: pb.PlanRequest) -> None:
    """Every microbatch whole, in the most expensive way, stays below the limits that the bounds promise."""
    work_us, kept = 0.0, 0.0
    for module in request.job.model.modules:
        tables = [(run.count, LayerTable(run.cost)) for run in module.layers]
        for microbatch in request.batch.microbatches:
            sizes = [u for sample in microbatch.samples for u in sample.instances[module.name].units]
            if not sizes:
                continue
            for count, table in tables:
                ways = [table.at(way, sum(sizes), sum(u * u for u in sizes)) for way in table.strategies]
                work_us += count * max(way.forward_us for way in ways)
                kept += count * max(way.activation_bytes for way in ways)
    assert work_us / min([1.0, *request.job.cluster.rank_speed]) <= MAX_TOTAL_US
    assert kept <= MAX_TOTAL_BYTES


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 2**32), changes=st.integers(1, 6))
def test_mutated_requests_of_a_job_raise_nothing_else(seed: int, changes: int) -> None:
    rng, made = random.Random(seed), corners.loaded_partition()
    key = {"job_id": "vlm", "attempt": 1}
    action = pb.Action(kind=pb.ACTION_KIND_SEND_GRADIENT, module="vision", consumer_module="language", peer=1)
    register = pb.RegisterJobRequest(**key, spec=made.job, representative_batch=made.batch, partition=made.partition)
    submit = pb.SubmitBatchRequest(**key, batch=made.batch)
    stream = pb.StreamSchedulesRequest(**key)
    report = pb.ReportExecutionRequest(**key, plan_digest=bytes(32), actions=[action] * 3)
    for request in (register, submit, stream, report):
        for _ in range(changes):
            change_any_field(request, rng)
    passes(lambda: validate_register_job(register))
    passes(lambda: validate_submit_batch(submit, made.job))
    passes(lambda: validate_stream_schedules(stream, made.job))
    passes(lambda: validate_report_execution(report, made.job))
