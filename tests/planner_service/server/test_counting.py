"""Shows that each call is counted once by how it ended, wherever that was decided, and what it carried by its bytes."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import grpc
import grpc.aio
import pytest
from access_files import AccessFile, bearer
from dip.planner.v1 import planner_pb2 as pb
from dip.planner.v1 import planner_pb2_grpc as pb_grpc
from metric_samples import value
from serving import (
    CHANNEL_OPTIONS,
    batch,
    client,
    is_refused,
    planner,
    refusal,
    register,
    run,
    spec,
    stream,
    submit,
    take,
)

from planner_service.metrics.catalogue import REGISTRY
from planner_service.server.counting import Counting
from planner_service.server.handlers import add_servicer

if TYPE_CHECKING:
    from pathlib import Path

TOKEN = "a token that nobody may ever read"


def ended(method: str, code: str) -> float:
    return value("dip_calls_total", method=method, code=code)


def all_ended() -> float:
    (calls,) = (metric for metric in REGISTRY.collect() if metric.name == "dip_calls")
    return sum(sample.value for sample in calls.samples)


class Failing:
    """Has a bug in every method."""

    draining = False

    def __getattr__(self, method: str) -> object:
        async def fail(request: object, context: object) -> None:
            raise ZeroDivisionError

        return fail


async def comes_to(count: float, method: str, code: str) -> None:
    """Wait until so many have ended so: a client may know of the end before the planner's handler is through."""
    while ended(method, code) < count:
        await asyncio.sleep(0.001)
    assert ended(method, code) == count


def test_refusals_are_counted_by_code_wherever_they_come_from(tmp_path: Path) -> None:
    access = AccessFile(tmp_path / "access.toml")
    access.let_in("trainer", TOKEN, jobs=("mine",))
    refused = (
        (register("mine"), (), "UNAUTHENTICATED"),
        (register("mine"), bearer("wrong"), "UNAUTHENTICATED"),
        (register("other"), bearer(TOKEN), "PERMISSION_DENIED"),
        (register("no name"), bearer(TOKEN), "INVALID_ARGUMENT"),
    )

    async def scenario() -> None:
        async with planner(access_file=access.path) as server, client(server) as stub:
            for request, metadata, code in refused:
                before, all_before = ended("RegisterJob", code), all_ended()
                await is_refused(stub.RegisterJob(request, metadata=metadata), grpc.StatusCode[code])
                await comes_to(before + 1, "RegisterJob", code)
                assert all_ended() == all_before + 1
            before = ended("RegisterJob", "OK")
            await stub.RegisterJob(register("mine"), metadata=bearer(TOKEN))
            await comes_to(before + 1, "RegisterJob", "OK")

    run(scenario())


def test_token_is_in_no_metric(tmp_path: Path) -> None:
    access = AccessFile(tmp_path / "access.toml")
    access.let_in("trainer", TOKEN)

    async def scenario() -> None:
        async with planner(access_file=access.path) as server, client(server) as stub:
            await stub.RegisterJob(register(), metadata=bearer(TOKEN))

    run(scenario())
    told = [(sample.name, sample.labels) for metric in REGISTRY.collect() for sample in metric.samples]
    assert TOKEN not in json.dumps(told)


def test_stream_that_its_client_leaves_is_cancelled_and_has_no_duration() -> None:
    async def scenario() -> None:
        before = ended("StreamSchedules", "CANCELLED")
        sent, were_open = value("dip_sent_bytes_total", method="StreamSchedules"), value("dip_open_streams")
        async with planner() as server, client(server) as stub:
            await stub.RegisterJob(register())
            await stub.SubmitBatch(submit(0))
            call = stub.StreamSchedules(stream())
            (response,) = await take(call, 1)
            assert value("dip_open_streams") == were_open + 1
            call.cancel()
            while value("dip_open_streams") > were_open:
                await asyncio.sleep(0.001)
            await comes_to(before + 1, "StreamSchedules", "CANCELLED")
            assert value("dip_sent_bytes_total", method="StreamSchedules") == sent + response.ByteSize()

    run(scenario())
    assert value("dip_call_duration_seconds_count", method="StreamSchedules") == 0


def test_what_carries_a_call_is_counted() -> None:
    async def scenario() -> None:
        async with planner() as server, client(server) as stub:
            request = pb.PlanRequest(job=spec(), batch=batch())
            names = ("dip_received_bytes_total", "dip_sent_bytes_total", "dip_call_duration_seconds_count")
            before, answered = [value(name, method="Plan") for name in names], ended("Plan", "OK")
            answer = await stub.Plan(request)
            await comes_to(answered + 1, "Plan", "OK")
            grown = [value(name, method="Plan") - count for name, count in zip(names, before, strict=True)]
            assert grown == [request.ByteSize(), answer.ByteSize(), 1]

    run(scenario())


def test_bug_is_counted_as_unknown() -> None:
    async def scenario() -> None:
        before = ended("ListJobs", "UNKNOWN")
        server = grpc.aio.server(interceptors=[Counting()])
        add_servicer(server, Failing())
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=CHANNEL_OPTIONS) as channel:
            error = await refusal(pb_grpc.PlannerServiceStub(channel).ListJobs(pb.ListJobsRequest()))
        await server.stop(grace=0)
        assert error.code() == grpc.StatusCode.UNKNOWN
        await comes_to(before + 1, "ListJobs", "UNKNOWN")

    run(scenario())


@pytest.mark.parametrize("path", ["/dip.planner.v1.PlannerService/Nothing", "/other/RegisterJob", "/" + "x" * 1000])
def test_names_that_clients_make_up_are_no_labels(path: str) -> None:
    async def scenario() -> None:
        before = all_ended()
        async with planner() as server, grpc.aio.insecure_channel(server.address, options=CHANNEL_OPTIONS) as channel:
            await is_refused(channel.unary_unary(path)(b""), grpc.StatusCode.UNIMPLEMENTED)
        assert all_ended() == before

    run(scenario())
