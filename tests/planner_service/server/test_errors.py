"""Shows that bad input is refused with every fault named, in a status that always reaches the caller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import pytest
import scripted_engine
from dip.errors import FieldViolation, InvalidRequestError
from dip.planner.v1 import planner_pb2 as pb
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from serving import batch, planner, refusal, register, report, run, served, spec, stream, submit

from planner_service.server import refusals
from planner_service.store import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable


def bad_request(error: grpc.aio.AioRpcError) -> dict[str, str]:
    """Violations of an INVALID_ARGUMENT, by field."""
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, error.details()
    (detail,) = rpc_status.from_call(error).details
    found = error_details_pb2.BadRequest()
    assert detail.Unpack(found)
    return {violation.field: violation.description for violation in found.field_violations}


def plan_request() -> pb.PlanRequest:
    return pb.PlanRequest(job=spec(), batch=batch())


def _set(**values: Any) -> Callable[[Any], None]:
    def spoil(request: Any) -> None:
        for name, value in values.items():
            setattr(request, name, value)

    return spoil


def _without_a_model(request: pb.RegisterJobRequest) -> None:
    request.spec.ClearField("model")


def _unknown_module(request: Any) -> None:
    request.batch.microbatches[0].samples[0].instances["touch"].units.append(4)


@pytest.mark.parametrize(
    ("method", "make", "spoil", "field"),
    [
        ("RegisterJob", register, _set(job_id=""), "job_id"),
        ("RegisterJob", register, _set(attempt=-1), "attempt"),
        ("RegisterJob", register, _without_a_model, "spec.model.modules"),
        ("SubmitBatch", lambda: submit(0), _set(job_id=""), "job_id"),
        ("SubmitBatch", lambda: submit(0), _set(replica=5), "replica"),
        ("SubmitBatch", lambda: submit(0), _set(iteration=-1), "iteration"),
        ("SubmitBatch", lambda: submit(0), _unknown_module, 'batch.microbatches[0].samples[0].instances["touch"]'),
        ("StreamSchedules", stream, _set(rank=2), "rank"),
        ("StreamSchedules", stream, _set(first_iteration=-3), "first_iteration"),
        ("ReportExecution", lambda: report(0), _set(rank=-1), "rank"),
        ("ReportExecution", lambda: report(0), _set(plan_digest=b"short"), "plan_digest"),
        ("Plan", plan_request, _unknown_module, 'batch.microbatches[0].samples[0].instances["touch"]'),
        ("GetJob", pb.GetJobRequest, _set(job_id=""), "job_id"),
        ("GetPlan", lambda: pb.GetPlanRequest(job_id="job"), _set(replica=1), "replica"),
        ("GetPlan", lambda: pb.GetPlanRequest(job_id="job"), _set(iteration=-1), "iteration"),
        ("CloseJob", pb.CloseJobRequest, _set(job_id=""), "job_id"),
    ],
)
def test_field_is_named(method: str, make: Callable[[], Any], spoil: Callable[[Any], None], field: str) -> None:
    async def scenario() -> None:
        async with served() as stub:
            await stub.RegisterJob(register())
            request = make()
            spoil(request)
            call = getattr(stub, method)(request)
            error = await refusal(call.read() if method == "StreamSchedules" else call)
            violations = bad_request(error)
            assert field in violations
            assert all(violations.values())

    run(scenario())


def test_every_fault_is_listed() -> None:
    async def scenario() -> None:
        async with served() as stub:
            await stub.RegisterJob(register())
            error = await refusal(
                stub.SubmitBatch(pb.SubmitBatchRequest(job_id="job", attempt=1, replica=9, iteration=-9))
            )
            assert {"replica", "iteration"} <= set(bad_request(error))

    run(scenario())


def test_thousands_of_faults_still_reach_the_caller() -> None:
    async def scenario() -> None:
        async with served() as stub:
            await stub.RegisterJob(register())
            request = submit(0)
            for index in range(3_000):
                request.batch.microbatches[0].samples[0].instances[f"module {index} " + "x" * 300].units.append(1)
            violations = bad_request(await refusal(stub.SubmitBatch(request)))
            assert len(violations) >= 5

    run(scenario())


def test_other_plan_refusals_have_the_contracts_codes() -> None:
    async def scenario() -> None:
        async with served() as stub:
            request = plan_request()
            request.batch.CopyFrom(batch(scripted_engine.CANNOT_FIT))
            error = await refusal(stub.Plan(request))
            assert error.code() == grpc.StatusCode.FAILED_PRECONDITION
            assert error.details() == "rank 1 needs at least 20 bytes, memory_bytes allows it 10"

    run(scenario())


def test_bytes_that_are_no_message_are_invalid() -> None:
    async def scenario() -> None:
        async with planner() as server, grpc.aio.insecure_channel(server.address) as channel:
            for method in ("RegisterJob", "SubmitBatch", "Plan"):
                call = channel.unary_unary(f"/dip.planner.v1.PlannerService/{method}")
                error = await refusal(call(b"\xff\xff\xff"))
                assert bad_request(error)[""].endswith(f"no serialized {method}Request")

    run(scenario())


def test_store_that_fails_is_unavailable() -> None:
    error = refusals.of_store(StoreError("gone"))
    assert error.code == grpc.StatusCode.UNAVAILABLE.value[0]


def test_status_stays_within_what_metadata_may_hold() -> None:
    violations = tuple(FieldViolation(field="f" * 5_000, description="d" * 5_000) for _ in range(500))
    error = refusals.invalid(InvalidRequestError(violations))
    assert len(error.message) <= 1_000
    (detail,) = error.details
    assert isinstance(detail, error_details_pb2.BadRequest)
    assert detail.ByteSize() < 4_000
    assert detail.field_violations[-1].description.startswith("and ")
