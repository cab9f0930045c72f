"""What hostile clients do to a planner: each attack holds on while its block runs, and says what it met with.

All are of one client: of one token.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import grpc
import grpc.aio
from dip.planner.v1 import planner_pb2 as pb
from dip.planner.v1 import planner_pb2_grpc as pb_grpc

from benchmarks.fuzzing.good_job import JOB_ID
from benchmarks.hostile_clients import http2
from benchmarks.hostile_clients.http2 import RawConnection
from benchmarks.planner_process import CHANNEL_OPTIONS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    Attack = Callable[["Target", int], contextlib.AbstractAsyncContextManager[dict[str, int]]]

SERVICE: Final = "/dip.planner.v1.PlannerService/"

_CALLS_A_CONNECTION: Final = 200
_USUAL: Final[Mapping[int, int]] = MappingProxyType({})
_PATIENCE_S: Final = 240.0
_LARGE: Final = 2**24
_OVERSIZED: Final = 2**31 - 1
_CHUNK: Final = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A planner, and as whom to attack it.

    Parameters
    ----------
    address
        Where it listens.
    metadata
        Of every call: the attacker's token, where the planner asks for one.
    """

    address: str
    metadata: tuple[tuple[str, str], ...] = ()


@contextlib.asynccontextmanager
async def streams(target: Target, count: int) -> AsyncIterator[dict[str, int]]:
    """Open streams on several connections, and keep those that are not refused; counts by status, OPEN among them."""
    async with contextlib.AsyncExitStack() as stack:
        calls = []
        for start in range(0, count, _CALLS_A_CONNECTION):
            channel = await stack.enter_async_context(
                grpc.aio.insecure_channel(target.address, options=CHANNEL_OPTIONS)
            )
            await channel.channel_ready()
            stub: pb_grpc.PlannerServiceAsyncStub = pb_grpc.PlannerServiceStub(channel)
            request = pb.StreamSchedulesRequest(job_id=JOB_ID, attempt=1, first_iteration=2**40)
            calls += [
                stub.StreamSchedules(request, metadata=target.metadata)
                for _ in range(min(_CALLS_A_CONNECTION, count - start))
            ]
        await asyncio.gather(*(call.initial_metadata() for call in calls))
        found: dict[str, int] = {}
        yield found
        # Only now, as gRPC may tell that a refused call has begun a moment before it tells of the refusal.
        found |= Counter([(await call.code()).name if call.done() else "OPEN" for call in calls])
        for call in calls:
            call.cancel()


@contextlib.asynccontextmanager
async def unread_answers(target: Target, count: int) -> AsyncIterator[dict[str, int]]:
    """Ask for plans, and let nothing of them be sent; counts refusals."""
    request = pb.GetPlanRequest(job_id=JOB_ID).SerializeToString()
    sent = [http2.call(2 * number + 1, f"{SERVICE}GetPlan", request, target.metadata) for number in range(count)]
    async with _raw(target, _connections(count), {http2.INITIAL_WINDOW_SIZE: 0}) as connections:
        for start, connection in zip(range(0, count, _CALLS_A_CONNECTION), connections, strict=True):
            await asyncio.to_thread(connection.send, b"".join(sent[: min(_CALLS_A_CONNECTION, count - start)]))
        yield {"calls": count}


@contextlib.asynccontextmanager
async def trickled_requests(target: Target, count: int) -> AsyncIterator[dict[str, int]]:
    """Begin large requests, send all that is taken of them but for the last byte; says how much was taken."""
    async with _raw(target, _connections(count)) as connections:
        trickles = (
            asyncio.to_thread(_trickle, connection, target, min(_CALLS_A_CONNECTION, count - start))
            for start, connection in zip(range(0, count, _CALLS_A_CONNECTION), connections, strict=True)
        )
        taken = await asyncio.gather(*trickles)
        yield {"taken_mib": sum(taken) // 2**20}


@contextlib.asynccontextmanager
async def oversized(target: Target, count: int) -> AsyncIterator[dict[str, int]]:
    """Announce requests that are larger than any may be, and send a part of each; counts how calls end."""
    async with _raw(target, _connections(count)) as connections:
        endings: Counter[str] = Counter()
        for start, connection in zip(range(0, count, _CALLS_A_CONNECTION), connections, strict=True):
            endings += await asyncio.to_thread(_announce, connection, target, min(_CALLS_A_CONNECTION, count - start))
        yield dict(endings)


@contextlib.asynccontextmanager
async def silence(target: Target, count: int) -> AsyncIterator[dict[str, int]]:
    """Connect, and say nothing, half a greeting, or headers and requests without end, in turn."""
    beginnings = [
        b"",
        http2.PREFACE[:5],
        http2.PREFACE,
        http2.PREFACE + http2.settings({}),
        http2.PREFACE + http2.settings({}) + http2.headers(1, f"{SERVICE}ListJobs", target.metadata, flags=0),
        http2.PREFACE + http2.settings({}) + http2.headers(1, f"{SERVICE}ListJobs", target.metadata),
    ]
    async with _raw(target, count, None) as connections:
        for number, connection in enumerate(connections):
            await asyncio.to_thread(connection.send, beginnings[number % len(beginnings)])
        yield {"connections": len(connections)}


@contextlib.asynccontextmanager
async def resets(target: Target, count: int) -> AsyncIterator[dict[str, int]]:
    """Open calls and give each up at once, on one connection, until it is ended."""
    request = pb.StreamSchedulesRequest(job_id=JOB_ID, attempt=1).SerializeToString()

    def opened(number: int) -> bytes:
        return http2.call(2 * number + 1, f"{SERVICE}StreamSchedules", request, target.metadata) + http2.reset(
            2 * number + 1
        )

    async with _flooded(target, map(opened, range(count))) as sent:
        yield {"calls": sent}


@contextlib.asynccontextmanager
async def unread_refusals(target: Target, count: int) -> AsyncIterator[dict[str, int]]:
    """Make calls that are refused, on one connection, and read nothing at all, until it is ended."""
    request = pb.GetJobRequest(job_id="unknown").SerializeToString()

    def called(number: int) -> bytes:
        return http2.call(2 * number + 1, f"{SERVICE}GetJob", request, target.metadata)

    async with _flooded(target, map(called, range(count))) as sent:
        yield {"calls": sent}


@contextlib.asynccontextmanager
async def pings(target: Target, count: int) -> AsyncIterator[dict[str, int]]:
    """Send pings as fast as they go, until the connection is ended."""
    async with _flooded(target, (http2.ping() for _ in range(count))) as sent:
        yield {"pings": sent}


@contextlib.asynccontextmanager
async def unknown_tokens(target: Target, count: int) -> AsyncIterator[dict[str, int]]:
    """Call with tokens that nobody has, each another one; counts how calls end."""
    async with grpc.aio.insecure_channel(target.address, options=CHANNEL_OPTIONS) as channel:
        await channel.channel_ready()
        stub: pb_grpc.PlannerServiceAsyncStub = pb_grpc.PlannerServiceStub(channel)
        endings: Counter[str] = Counter()
        for start in range(0, count, _CHUNK):
            calls = [
                stub.ListJobs(pb.ListJobsRequest(), metadata=(("authorization", f"Bearer guess-{number}"),))
                for number in range(start, min(start + _CHUNK, count))
            ]
            endings += Counter([(await call.code()).name for call in calls])
        yield dict(endings)


ATTACKS: Final[dict[str, Attack]] = {
    attack.__name__: attack
    for attack in (
        streams,
        unread_answers,
        trickled_requests,
        oversized,
        silence,
        resets,
        unread_refusals,
        pings,
        unknown_tokens,
    )
}
"""By name."""


def _connections(count: int) -> int:
    return -(-count // _CALLS_A_CONNECTION)


@contextlib.asynccontextmanager
async def _raw(
    target: Target, count: int, greeting: Mapping[int, int] | None = _USUAL
) -> AsyncIterator[list[RawConnection]]:
    """Connect so many times; None: without a word."""
    connections: list[RawConnection] = []
    try:
        for _ in range(count):
            connections.append(await asyncio.to_thread(RawConnection, target.address))
            if greeting is not None:
                await asyncio.to_thread(connections[-1].greet, greeting)
        yield connections
    finally:
        for connection in connections:
            connection.close()


@contextlib.asynccontextmanager
async def _flooded(target: Target, frames: Iterable[bytes]) -> AsyncIterator[int]:
    """Send frames on one connection until it is ended; yields how many were sent."""
    async with _raw(target, 1) as (connection,):
        yield await asyncio.to_thread(_flood, connection, list(frames))


def _flood(connection: RawConnection, frames: list[bytes]) -> int:
    for start in range(0, len(frames), _CHUNK):
        try:
            connection.send(b"".join(frames[start : start + _CHUNK]))
        except OSError:  # hung up on
            return start
    return len(frames)


def _trickle(connection: RawConnection, target: Target, count: int) -> int:
    left = dict.fromkeys(range(1, 2 * count, 2), _LARGE - 1)
    for stream in left:
        connection.send(http2.headers(stream, f"{SERVICE}SubmitBatch", target.metadata))
        connection.send_data(stream, b"\0" + _LARGE.to_bytes(4, "big"))
    connection.set_patience(1.0)
    frames = connection.frames()
    with contextlib.suppress(TimeoutError, ConnectionError):  # nothing more is taken, or it is hung up on
        while True:
            waits = True
            for stream, size in left.items():
                if takes := min(size, connection.may_send(stream)):
                    connection.send_data(stream, bytes(takes))
                    left[stream], waits = size - takes, False
            if waits:
                next(frames)
    return sum(_LARGE - 1 - size for size in left.values())


def _announce(connection: RawConnection, target: Target, count: int) -> Counter[str]:
    streams = range(1, 2 * count, 2)
    for stream in streams:
        connection.send(http2.headers(stream, f"{SERVICE}SubmitBatch", target.metadata))
        connection.send_data(stream, b"\0" + _OVERSIZED.to_bytes(4, "big") + bytes(64))
    endings: Counter[str] = Counter()
    connection.set_patience(_PATIENCE_S)
    for kind, flags, _, payload in connection.frames():
        if kind == http2.HEADERS and flags & http2.END_STREAM:
            code = payload.partition(b"grpc-status")[2][1:3].strip(b"\0@\x01\x02")
            endings[grpc_name(code)] += 1
        if sum(endings.values()) == count:
            break
    return endings


def grpc_name(code: bytes) -> str:
    """Name of a status as it is written on the wire."""
    return next((status.name for status in grpc.StatusCode if str(status.value[0]).encode() == code), repr(code))
