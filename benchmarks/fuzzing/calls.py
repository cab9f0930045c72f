"""Sends what is drawn to a planner, and judges how each call ends by what the contract says."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from benchmarks.fuzzing.inputs import CONNECTION, METHODS, SERVICE, STREAMING, answer_type

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from benchmarks.fuzzing.inputs import Input

PATIENCE_S: Final = 240.0
"""Longest that a call may take which waits for no solver."""
CLOSED: Final = "connection closed"
"""How bytes that open no call end."""

DOCUMENTED: Final = frozenset(
    {
        grpc.StatusCode.OK,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.ALREADY_EXISTS,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)
"""Codes that a client may see: the contract's, and those of its own patience or of a method that there is not."""

_SLOW: Final = frozenset(("Plan", "RegisterJob", "StreamSchedules"))
_STREAM_S: Final = 0.2
_GIVES_UP: Final = 0.05  # such clients of solvers do, of which each costs a worker
_GIVES_UP_WITHIN_S: Final = 1.0
_LEAST_S: Final = 0.01
_CANCELS_AT_ONCE: Final = 0.2
_CONNECTION_S: Final = 0.1
# What gRPC itself says, without details, of a request that is larger than the setting allows.
_TOO_LARGE: Final = "larger than max"
_STATUS_KEY: Final = "grpc-status-details-bin"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """How a call ended.

    Parameters
    ----------
    code
        Name of its status.
    details
        What its status says.
    fault
        How it breaks the contract; empty where it does not.
    schedules
        How many a stream gave before.
    """

    code: str
    details: str = ""
    fault: str = ""
    schedules: int = 0


async def send(channel: grpc.aio.Channel, address: str, sent: Input) -> Ending:
    """Make one call, and wait for its end.

    Parameters
    ----------
    channel
        To the planner.
    address
        The same for bytes that open a connection of their own.
    """
    if sent.kind == CONNECTION:
        return await _connect(address, sent)
    patience_s = _patience_s(sent)
    path = f"/{SERVICE.full_name}/{sent.method}"
    if sent.method in STREAMING:
        stream: grpc.aio.UnaryStreamMultiCallable[bytes, bytes] = channel.unary_stream(path, _same, _same)
        return await _stream(stream(sent.request, timeout=patience_s), sent)
    method: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(path, _same, _same)
    try:
        return _answered(sent, await method(sent.request, timeout=patience_s))
    except grpc.aio.AioRpcError as error:
        return _failed(sent, error)


def _patience_s(sent: Input) -> float:
    if sent.method in STREAMING:
        return _LEAST_S + sent.patience * _STREAM_S
    if sent.method in _SLOW and sent.patience < _GIVES_UP:
        return _LEAST_S + sent.patience / _GIVES_UP * _GIVES_UP_WITHIN_S
    return PATIENCE_S


async def _stream(call: grpc.aio.UnaryStreamCall[bytes, bytes], sent: Input) -> Ending:
    if sent.patience < _CANCELS_AT_ONCE:
        call.cancel()
        return Ending(code=(await call.code()).name)
    schedules = 0
    try:
        async for answer in call:
            schedules += 1
            if (ending := _answered(sent, answer)).fault:
                return ending
    except grpc.aio.AioRpcError as error:
        return replace(_failed(sent, error), schedules=schedules)
    return Ending(code=(await call.code()).name, schedules=schedules)


def _same(sent: bytes) -> bytes:
    return sent


async def _connect(address: str, sent: Input) -> Ending:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(sent.request)
    with contextlib.suppress(TimeoutError, ConnectionError):
        await asyncio.wait_for(reader.read(), _CONNECTION_S * sent.patience)
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
    return Ending(code=CLOSED)


def _answered(sent: Input, answer: bytes) -> Ending:
    if sent.method not in METHODS:
        return Ending(code="OK", fault="a method that does not exist answers")
    try:
        answer_type(sent.method).FromString(answer)
    except DecodeError as error:
        return Ending(code="OK", fault=f"the answer is none: {error}")
    return Ending(code="OK")


def _failed(sent: Input, error: grpc.aio.AioRpcError) -> Ending:
    return Ending(code=error.code().name, details=error.details() or "", fault=fault_of(sent, error))


def fault_of(sent: Input, error: grpc.aio.AioRpcError) -> str:
    """Say how the status of a call breaks the contract; empty where it keeps to it."""
    match error.code():
        case code if code not in DOCUMENTED:
            return "the contract does not name this code"
        case grpc.StatusCode.DEADLINE_EXCEEDED if sent.method not in _SLOW:
            return f"no answer within {PATIENCE_S:g} s"
        case grpc.StatusCode.UNIMPLEMENTED if sent.method in METHODS:
            return "a method of the contract is said not to exist"
        case grpc.StatusCode.CANCELLED:
            return "nobody cancelled this call"
        case grpc.StatusCode.UNAVAILABLE if _status(error) is None:
            return "the connection was lost"
        case grpc.StatusCode.INVALID_ARGUMENT if not _carries(error, error_details_pb2.BadRequest()):
            return "INVALID_ARGUMENT comes without google.rpc.BadRequest"
        case grpc.StatusCode.RESOURCE_EXHAUSTED if _TOO_LARGE not in (error.details() or ""):
            found = _carries(error, error_details_pb2.RetryInfo())
            return "" if found else "RESOURCE_EXHAUSTED comes without google.rpc.RetryInfo"
    return ""


def _carries(error: grpc.aio.AioRpcError, detail: Message) -> bool:
    status = _status(error)
    return status is not None and any(packed.Unpack(detail) for packed in status.details)


def _status(error: grpc.aio.AioRpcError) -> status_pb2.Status | None:
    """Return the planner's own words; None where gRPC speaks for it."""
    for key, value in error.trailing_metadata() or ():
        if key == _STATUS_KEY and isinstance(value, bytes):
            return status_pb2.Status.FromString(value)
    return None
