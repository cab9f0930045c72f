"""Shows that a request's messages are counted before they are made, at every depth, and that clients take turns."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import grpc.aio
import pytest
from dip.errors import InvalidRequestError
from dip.planner.v1 import planner_pb2 as pb
from google.protobuf.message import DecodeError, Message
from serving import planner, refusal, run

from benchmarks.fuzzing.messages import random_message
from planner_service.server.decoding import MOST_PARTS, Decoder
from planner_service.server.parts import has_more_parts

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS = (pb.ReportExecutionRequest, pb.SubmitBatchRequest, pb.RegisterJobRequest, pb.PlanRequest)


def inner(message: Message) -> Iterator[Message]:
    """Yield the messages that a message holds, at every depth; an entry of a map is one."""
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            if field.message_type.fields_by_name["value"].message_type is None:
                yield from (message for _ in value)
                continue
            for held in value.values():
                yield held  # the entry
                yield held
                yield from inner(held)
            continue
        for held in value if field.is_repeated else [value]:
            yield held
            yield from inner(held)


@pytest.mark.parametrize("kind", KINDS)
def test_messages_are_counted_as_decoding_finds_them(kind: type[Message]) -> None:
    generator = random.Random(7)
    for _ in range(50):
        message = random_message(kind, generator)
        count = sum(1 for _ in inner(message))
        request = message.SerializeToString()
        assert not has_more_parts(request, kind, count)
        assert count == 0 or has_more_parts(request, kind, count - 1)


@pytest.mark.parametrize("request_", [b"\x22", b"\x22\xff\xff", b"\xff" * 40, b"\x22\x7f\x22", b"\x08\x80"])
def test_what_is_no_message_is_left_to_decoding(request_: bytes) -> None:
    assert not has_more_parts(request_, pb.SubmitBatchRequest, 10)
    with pytest.raises(DecodeError):
        asyncio.run(Decoder(large_bytes=0).decode(request_, pb.SubmitBatchRequest))


def test_too_many_messages_are_refused_and_never_made() -> None:
    empties = pb.ReportExecutionRequest(actions=[pb.Action()] * 101).SerializeToString()
    decoder = Decoder(large_bytes=100, most_parts=100)
    with pytest.raises(InvalidRequestError, match="more than 100 messages"):
        asyncio.run(decoder.decode(empties, pb.ReportExecutionRequest))
    fewer = pb.ReportExecutionRequest(actions=[pb.Action()] * 100).SerializeToString()
    assert len(asyncio.run(decoder.decode(fewer, pb.ReportExecutionRequest)).actions) == 100


def test_no_field_that_is_allowed_is_too_many() -> None:
    batch = pb.Batch(microbatches=[pb.Microbatch(samples=[pb.Sample()] * 1000)] * 300)
    request = pb.SubmitBatchRequest(batch=batch).SerializeToString()
    assert len(request) > 2**19
    assert asyncio.run(Decoder().decode(request, pb.SubmitBatchRequest)).batch == batch


def test_server_makes_no_message_of_such_bytes() -> None:
    tag = pb.ReportExecutionRequest.DESCRIPTOR.fields_by_name["actions"].number << 3 | 2
    empties = pb.ReportExecutionRequest(job_id="job").SerializeToString() + bytes((tag, 0)) * (MOST_PARTS + 1)

    async def scenario() -> None:
        async with planner() as server, grpc.aio.insecure_channel(server.address) as channel:
            report = channel.unary_unary("/dip.planner.v1.PlannerService/ReportExecution")
            error = await refusal(report(empties))
            assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
            assert "messages, counted at every depth" in error.details()

    run(scenario())
