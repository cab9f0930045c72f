"""Shows what the planner puts up with on a connection: silence for a while, few calls, no request without end."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, TypeVar
from unittest.mock import patch

import grpc
import grpc.aio
import pytest
from dip.planner.v1 import planner_pb2 as pb
from dip.planner.v1 import planner_pb2_grpc as pb_grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from serving import CHANNEL_OPTIONS, client, planner, register, run, stream, submit
from waiting import PATIENCE_S

from benchmarks.hostile_clients import http2
from benchmarks.hostile_clients.http2 import RawConnection
from planner_service.server import channel_options, lifecycle
from planner_service.server.client_calls import RECEIVED_AT_ONCE, ClientCalls
from planner_service.server.handlers import add_servicer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

SERVICE = "/dip.planner.v1.PlannerService/"
SHORT_MS = 300
LARGE = 2**20
WINDOW = 2**16
DEADLINE = "grpc-status\x014"
SOON_AGAIN = (("grpc.initial_reconnect_backoff_ms", SHORT_MS), ("grpc.max_reconnect_backoff_ms", SHORT_MS))
"""Of a client: how soon it tries to connect again."""

T = TypeVar("T")


class Answering:
    """Answers every call with nothing."""

    draining = False

    async def __call__(self, request: object, context: object) -> pb.SubmitBatchResponse:
        return pb.SubmitBatchResponse()

    def __getattr__(self, method: str) -> Answering:
        return self


@contextlib.asynccontextmanager
async def answering(calls: ClientCalls) -> AsyncIterator[str]:
    """Serve on a free port, and yield the address."""
    with patch.object(channel_options, "GREETING_MS", int(PATIENCE_S * 1000)):
        options = channel_options.server_options(max_message_bytes=2 * LARGE, max_connections=9)
    server = grpc.aio.server(options=options, interceptors=[calls])
    add_servicer(server, Answering())
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(grace=0)


def hangs_up(address: str, begin: Callable[[RawConnection], None]) -> bool:
    """Whether a connection that begins so is ended by the planner, be it before it has begun."""
    with RawConnection(address) as connection:
        connection.set_patience(PATIENCE_S)
        with contextlib.suppress(ConnectionError):
            begin(connection)
        return connection.wait_for_end()


async def answered(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask until there is an answer: the planner is about to hang up on connections that do nothing for a moment."""
    while True:
        try:
            return await ask()
        except grpc.aio.AioRpcError as error:
            if error.code() != grpc.StatusCode.UNAVAILABLE:
                raise
        await asyncio.sleep(0.01)


def without_end(connection: RawConnection) -> None:
    connection.greet()
    connection.send(http2.headers(1, SERVICE + "ListJobs", flags=0))


@pytest.mark.parametrize(
    "begin",
    [
        lambda _: None,
        lambda connection: connection.send(http2.PREFACE[:5]),
        lambda connection: connection.send(http2.PREFACE),
        lambda connection: connection.send(http2.PREFACE + http2.settings({})),
        lambda connection: connection.greet(),
        without_end,
    ],
    ids=["says nothing", "half a preface", "preface", "answers no settings", "has no call", "headers without end"],
)
def test_connection_that_comes_to_nothing_is_ended(
    monkeypatch: pytest.MonkeyPatch, begin: Callable[[RawConnection], None]
) -> None:
    monkeypatch.setattr(channel_options, "IDLE_MS", SHORT_MS)

    async def scenario() -> None:
        async with planner(greeting_ms=SHORT_MS) as server, client(server, *SOON_AGAIN) as stub:
            for address in (server.address, server.health_address):
                assert await asyncio.to_thread(hangs_up, address, begin)
            # On a busy machine its own greeting may come too late at first.
            await answered(lambda: stub.ListJobs(pb.ListJobsRequest(), wait_for_ready=True))

    run(scenario())


def test_idle_connection_is_no_idle_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_options, "IDLE_MS", SHORT_MS)

    async def scenario() -> None:
        async with planner() as server, client(server) as stub, client(server) as other:
            await answered(lambda: other.RegisterJob(register()))

            async def opened() -> grpc.aio.UnaryStreamCall:
                call = stub.StreamSchedules(stream())
                await call.initial_metadata()
                if call.done():
                    await call.read()
                return call

            call = await answered(opened)
            assert await asyncio.to_thread(hangs_up, server.address, lambda connection: connection.greet())
            await answered(lambda: other.SubmitBatch(submit(0)))
            assert (await call.read()).iteration == 0

    run(scenario())


def test_connections_beyond_what_files_allow_are_hung_up_on_until_others_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "most_connections", lambda: 3)

    async def scenario() -> None:
        async with planner() as server:
            held = [await asyncio.to_thread(RawConnection, server.address) for _ in range(3)]
            for connection in held:
                await asyncio.to_thread(connection.greet)
            assert await asyncio.to_thread(hangs_up, server.address, lambda _: None)
            async with grpc.aio.insecure_channel(server.health_address, options=CHANNEL_OPTIONS) as channel:
                health = health_pb2_grpc.HealthStub(channel)
                assert (await health.Check(health_pb2.HealthCheckRequest())).status
            held.pop().close()
            async with client(server) as stub:
                await stub.ListJobs(pb.ListJobsRequest(), wait_for_ready=True)
            for connection in held:
                connection.close()

    run(scenario())


def test_many_calls_of_one_connection_are_answered() -> None:
    async def scenario() -> None:
        async with planner() as server, client(server) as stub:
            many = channel_options.CALLS_A_CONNECTION - 24
            answers = await asyncio.gather(*(stub.ListJobs(pb.ListJobsRequest()) for _ in range(many)))
            assert len(answers) == many

    run(scenario())


def ending_of(connection: RawConnection, stream: int) -> str:
    """Read on until a call ends; return its trailers."""
    for _, flags, of, payload in connection.frames():
        if of == stream and flags & http2.END_STREAM:
            return payload.decode("latin-1")
    raise AssertionError("the connection ended before the call")


def test_request_that_does_not_arrive_is_given_up() -> None:
    def begin(address: str) -> str:
        with RawConnection(address) as connection:
            connection.greet()
            connection.send(http2.headers(1, SERVICE + "SubmitBatch"))
            connection.send_data(1, b"\0" + LARGE.to_bytes(4, "big") + bytes(9))
            return ending_of(connection, 1)

    async def scenario() -> None:
        calls = ClientCalls(max_calls=9, max_unread_bytes=LARGE, request_s=SHORT_MS / 1000)
        async with answering(calls) as address:
            assert DEADLINE in (trailers := await asyncio.to_thread(begin, address))
            assert "the request did not arrive within 0.3 s" in trailers

    run(scenario())


def test_call_without_a_request_is_invalid() -> None:
    def begin(address: str) -> str:
        with RawConnection(address) as connection:
            connection.greet()
            connection.send(http2.headers(1, SERVICE + "SubmitBatch"))
            connection.send(http2.frame(http2.DATA, http2.END_STREAM, 1))
            return ending_of(connection, 1)

    async def scenario() -> None:
        async with answering(ClientCalls(max_calls=9, max_unread_bytes=LARGE, request_s=PATIENCE_S)) as address:
            assert "grpc-status\x013" in await asyncio.to_thread(begin, address)

    run(scenario())


def test_of_large_requests_that_trickle_few_are_received_at_once() -> None:
    few = (RECEIVED_AT_ONCE - 1) * LARGE

    def begin(address: str) -> int:
        """Send all that is taken; return how much that was."""
        streams = range(1, 2 * 3 * RECEIVED_AT_ONCE, 2)
        left = dict.fromkeys(streams, LARGE - WINDOW // 2)

        def taken() -> int:
            return sum(LARGE - WINDOW // 2 - size for size in left.values())

        with RawConnection(address) as connection:
            connection.greet()
            for stream in streams:
                connection.send(http2.headers(stream, SERVICE + "SubmitBatch"))
                connection.send_data(stream, b"\0" + LARGE.to_bytes(4, "big"))
            frames = connection.frames()
            with contextlib.suppress(TimeoutError):
                while True:
                    sent = [stream for stream in streams if _send_some(connection, stream, left)]
                    if not sent:
                        # So long without a word: no more is taken. Before, a busy machine may be slow to take it.
                        connection.set_patience(0.5 if taken() > few else PATIENCE_S)
                        next(frames)
        return taken()

    async def scenario() -> None:
        async with answering(ClientCalls(max_calls=999, max_unread_bytes=LARGE, request_s=PATIENCE_S)) as address:
            taken = await asyncio.to_thread(begin, address)
            assert few < taken < (RECEIVED_AT_ONCE + 1) * LARGE + 16 * WINDOW
            async with grpc.aio.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
                await pb_grpc.PlannerServiceStub(channel).SubmitBatch(submit(0))

    run(scenario())


def _send_some(connection: RawConnection, stream: int, left: dict[int, int]) -> bool:
    size = min(left[stream], connection.may_send(stream))
    if size:
        connection.send_data(stream, bytes(size))
        left[stream] -= size
    return size > 0


def test_watcher_of_health_that_does_not_read_holds_nobody_up() -> None:
    async def scenario() -> None:
        async with planner() as server:
            held = await asyncio.to_thread(RawConnection, server.health_address)
            await asyncio.to_thread(held.greet, {http2.INITIAL_WINDOW_SIZE: 0})
            for stream in (1, 3):
                held.send(http2.call(stream, "/grpc.health.v1.Health/Watch", b""))
            async with grpc.aio.insecure_channel(server.health_address, options=CHANNEL_OPTIONS) as channel:
                health = health_pb2_grpc.HealthStub(channel)
                other = health.Watch(health_pb2.HealthCheckRequest())
                assert (await other.read()).status == health_pb2.HealthCheckResponse.SERVING
                await server.drain()
        held.close()

    run(scenario())
