"""Shows that no request makes validation raise anything but InvalidRequestError, or passes sums that overflow."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

import cases
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

    from google.protobuf.descriptor import FieldDescriptor
    from google.protobuf.message import Message

INTEGERS = (0, 1, -1, 2, 3, 7, 63, 2**31 - 1, -(2**31), 2**53, 2**62, 2**63 - 1, -(2**63))
DOUBLES = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-300, 1e12, 1e300, math.inf, -math.inf, math.nan)
TEXTS = ("", "vision", "language", "store", "recompute", "audio", "\x00", "a\tb", "ü", "x" * 500)


def value_of(field: FieldDescriptor, rng: random.Random) -> object:
    """Return a value of the field's type, more often a nasty one than not."""
    if field.type == field.TYPE_INT32:
        return rng.choice([n for n in INTEGERS if -(2**31) <= n < 2**31])
    if field.type == field.TYPE_INT64:
        return rng.choice(INTEGERS)
    if field.type == field.TYPE_DOUBLE:
        return rng.choice(DOUBLES)
    if field.type == field.TYPE_BOOL:
        return rng.random() < 0.5
    if field.type == field.TYPE_ENUM:
        return rng.choice((0, 1, 5, 8, 77))
    if field.type == field.TYPE_BYTES:
        return rng.choice((b"", b"x", bytes(32)))
    return rng.choice(TEXTS)


def mutate(message: Message, rng: random.Random) -> None:
    """Change one field, somewhere in the message: set, clear, repeat, drop or shuffle."""
    field = rng.choice(message.DESCRIPTOR.fields)
    held = getattr(message, field.name)
    if field.message_type and field.message_type.GetOptions().map_entry:
        _mutate_map(held, field, rng)
    elif field.is_repeated:
        _mutate_list(held, field, rng)
    elif field.message_type:
        mutate(held, rng) if rng.random() < 0.95 else message.ClearField(field.name)
    else:
        setattr(message, field.name, value_of(field, rng))


def _mutate_map(held, field: FieldDescriptor, rng: random.Random) -> None:
    key, value = rng.choice(TEXTS[1:6]), field.message_type.fields_by_name["value"]
    if rng.random() < 0.2:
        held.clear()
    elif value.message_type:
        mutate(held[key], rng)
    else:
        held[key] = value_of(value, rng)


def _mutate_list(held, field: FieldDescriptor, rng: random.Random) -> None:
    if held and rng.random() < 0.1:
        del held[rng.randrange(len(held)) :]
    elif held and rng.random() < 0.1:
        held.extend(held[: rng.randrange(len(held)) + 1])
    elif not field.message_type:
        held.append(value_of(field, rng))
    elif held and rng.random() < 0.9:
        mutate(rng.choice(held), rng)
    else:
        held.add()


@settings(max_examples=400, deadline=None)
@given(
    name=st.sampled_from(sorted(cases.FITTING)),
    seed=st.integers(0, 2**32),
    changes=st.integers(1, 6),
)
def test_mutated_plan_requests_raise_nothing_else(name: str, seed: int, changes: int) -> None:
    request, rng = cases.FITTING[name](), random.Random(seed)
    for _ in range(changes):
        mutate(request, rng)
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
    rng, made = random.Random(seed), cases.loaded_partition()
    key = {"job_id": "vlm", "attempt": 1}
    action = pb.Action(kind=pb.ACTION_KIND_SEND_GRADIENT, module="vision", consumer_module="language", peer=1)
    register = pb.RegisterJobRequest(**key, spec=made.job, representative_batch=made.batch, partition=made.partition)
    submit = pb.SubmitBatchRequest(**key, batch=made.batch)
    stream = pb.StreamSchedulesRequest(**key)
    report = pb.ReportExecutionRequest(**key, plan_digest=bytes(32), actions=[action] * 3)
    for request in (register, submit, stream, report):
        for _ in range(changes):
            mutate(request, rng)
    passes(lambda: validate_register_job(register))
    passes(lambda: validate_submit_batch(submit, made.job))
    passes(lambda: validate_stream_schedules(stream, made.job))
    passes(lambda: validate_report_execution(report, made.job))
