"""Shows that inputs of every kind reach every method and repeat, that faults are told from what the contract allows."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from typing import TYPE_CHECKING, NoReturn

import grpc
import grpc.aio
import pytest
from dip.planner.v1 import planner_pb2 as pb
from dip.validation import validate_plan_request, validate_register_job, validate_submit_batch
from google.protobuf.message import DecodeError

from benchmarks.fuzzing.__main__ import main
from benchmarks.fuzzing.calls import PATIENCE_S, fault_of
from benchmarks.fuzzing.inputs import KINDS, METHODS, Input, draw_case, request_type
from benchmarks.fuzzing.messages import change_fields, random_message
from benchmarks.fuzzing.planner import PLANNER
from benchmarks.fuzzing.requests import batch, job_spec, register_job, valid_request
from benchmarks.fuzzing.spoilers import SPOILERS
from planner_service import settings as names
from planner_service.server import refusals

if TYPE_CHECKING:
    from google.protobuf.message import Message


def test_a_short_run_finds_nothing_and_counts_everything(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PLANNER, names.SOLVE_GRACE_MS, "60000")  # the good job's batches are planned on a busy machine
    assert main(["--inputs", "500", "--chunk", "250"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["inputs"] >= 500
    assert result["inputs"] == sum(result["codes"].values())
    assert set(METHODS) < set(result["by_method"])
    assert not result["not_allowed"]
    assert len(result["resident_mib"]) == 3


def test_an_input_is_decided_by_seed_and_number() -> None:
    again = [draw_case(1, number) for number in range(200)]
    assert [draw_case(1, number) for number in range(200)] == again
    assert [draw_case(2, number) for number in range(200)] != again


def test_every_kind_reaches_every_method() -> None:
    counts = Counter((sent.kind, sent.method) for number in range(3_000) for sent in draw_case(0, number))
    assert {kind for kind, _ in counts} == set(KINDS)
    for kind in ("drawn", "mutated", "valid", "bytes"):
        assert {method for of, method in counts if of == kind} == set(METHODS)


def test_valid_requests_are_valid() -> None:
    rng = random.Random(0)
    for number in range(12):
        validate_register_job(register_job("job", number, 1))
        validate_register_job(register_job("job", number, 1, loaded=False))
        for clock in range(20):
            submit, plan = valid_request("SubmitBatch", number, rng, clock), valid_request("Plan", number, rng, clock)
            assert isinstance(submit, pb.SubmitBatchRequest)
            assert isinstance(plan, pb.PlanRequest)
            validate_submit_batch(submit, job_spec(number))
            validate_plan_request(plan)


def test_drawn_messages_set_every_field_at_some_time() -> None:
    rng, unset = random.Random(0), set()

    def note(message: Message) -> None:
        for field, held in message.ListFields():
            unset.discard(field.full_name)
            if field.message_type and not field.message_type.GetOptions().map_entry:
                for one in held if field.is_repeated else [held]:
                    note(one)

    unset |= {field.full_name for method in METHODS for field in request_type(method).DESCRIPTOR.fields}
    unset |= {
        field.full_name for made in (pb.CostPoint, pb.Cluster, pb.PlannerOptions) for field in made.DESCRIPTOR.fields
    }
    for _ in range(100):
        for method in METHODS:
            note(random_message(request_type(method), rng))
    assert not unset


def test_changes_change() -> None:
    rng, same = random.Random(0), 0
    for seed in range(100):
        request = pb.SubmitBatchRequest(job_id="job", attempt=1, iteration=seed, batch=batch(1, seed))
        before = request.SerializeToString(deterministic=True)
        change_fields(request, rng, 1)
        same += request.SerializeToString(deterministic=True) == before
    assert same < 20


@pytest.mark.parametrize("spoiler", SPOILERS, ids=lambda spoiler: spoiler.__name__)
def test_every_spoiler_spoils(spoiler: object) -> None:
    assert callable(spoiler)
    rng, request = random.Random(0), register_job("job", 1, 1)
    whole = request.SerializeToString(deterministic=True)
    changed = 0
    for _ in range(20):
        spoilt = spoiler(whole, rng)
        try:
            changed += pb.RegisterJobRequest.FromString(spoilt) != request
        except DecodeError:
            changed += 1
    assert changed > 10


@pytest.mark.parametrize(
    ("method", "refusal", "fault"),
    [
        ("GetJob", refusals.not_found("no such job"), ""),
        ("GetJob", refusals.undecodable("GetJobRequest"), ""),
        (
            "GetJob",
            refusals.RefusalError(3, "said without details"),
            "INVALID_ARGUMENT comes without google.rpc.BadRequest",
        ),
        ("SubmitBatch", refusals.exhausted("too many", retry_ms=1), ""),
        ("SubmitBatch", refusals.RefusalError(8, "too many"), "RESOURCE_EXHAUSTED comes without google.rpc.RetryInfo"),
        ("SubmitBatch", refusals.RefusalError(13, "a bug"), "the contract does not name this code"),
        ("Plan", refusals.out_of_time("1 ms is left"), ""),
        ("GetPlan", refusals.out_of_time("1 ms is left"), f"no answer within {PATIENCE_S:g} s"),
        ("GetJob", refusals.RefusalError(12, "no such method"), "a method of the contract is said not to exist"),
    ],
)
def test_faults_are_told_from_what_the_contract_allows(method: str, refusal: refusals.RefusalError, fault: str) -> None:
    sent = Input(kind="drawn", method=method, request=b"", patience=1.0)
    assert fault_of(sent, ended_with(refusal)) == fault


def test_a_lost_connection_is_a_fault_and_what_the_planner_says_is_none() -> None:
    sent = Input(kind="drawn", method="Plan", request=b"", patience=1.0)
    assert fault_of(sent, ended_with(refusals.draining())) == ""
    lost = grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), "Socket closed")
    assert fault_of(sent, lost) == "the connection was lost"


class RecordingContext:
    """The part of a call's context that ends it, from the client's side."""

    def peer(self) -> str:
        return "unix:"

    async def abort(self, code: grpc.StatusCode, details: str, trailing: tuple[tuple[str, bytes], ...]) -> NoReturn:
        raise grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(*trailing), details)


def ended_with(refusal: refusals.RefusalError) -> grpc.aio.AioRpcError:
    """Return what a client gets to know of a refusal."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        asyncio.run(refusal.abort(RecordingContext()))  # type: ignore[arg-type]
    return caught.value
