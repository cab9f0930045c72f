"""What the calls of one client may take at a time, whatever it calls: so many under way, so much left unread.

Every method of every service is served as a stream of requests and answers, which is the same on the wire: so a call is
turned away before its request is received, a request that never ends is given up, and what an answer takes is known
until the client has read it. (Where gRPC receives the request first, a client has the planner hold as many messages as
it likes; where gRPC sends the answer last, nobody knows for how long it is held.)
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from planner_service import settings as names
from planner_service.access import ANYONE, current_caller, peer_caller, set_caller
from planner_service.server import refusals
from planner_service.server.turns import Turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from planner_service.server.handlers import Context

    Serve = Callable[["Handler", Any, Context], Awaitable[None]]

REQUEST_S: Final = 15.0
"""How long a request may take to arrive."""

RECEIVED_AT_ONCE: Final = 16
"""Requests of one client that are received at once, each as large as a message may be; of others that wait for their
turn, gRPC takes what fits an HTTP/2 window (64 KiB)."""

_RETRY_MS: Final = 1_000

_log = logging.getLogger(__name__)


class Handler(Protocol):
    """What gRPC's asyncio server knows of a method; its types tell of the other server."""

    request_streaming: bool
    response_streaming: bool
    request_deserializer: Callable[[bytes], Any] | None
    response_serializer: Callable[[Any], bytes]
    unary_unary: Callable[[Any, Context], Awaitable[Any]]
    unary_stream: Callable[[Any, Context], Awaitable[None]]
    stream_stream: Callable[[Any, Context], AsyncIterator[Any]]


class ClientCalls(grpc.aio.ServerInterceptor):
    """Counts what each client has under way. For use from one event loop.

    Parameters
    ----------
    max_calls
        Calls of one client, streams among them.
    max_unread_bytes
        What their answers may take that the client has not read; one alone is sent whatever it takes.
    uncounted_streams
        Paths of methods whose open streams have limits of their own: they count until their request is there.
    request_s
        Seconds that a request may take to arrive.
    """

    def __init__(
        self,
        *,
        max_calls: int,
        max_unread_bytes: int,
        uncounted_streams: frozenset[str] = frozenset(),
        request_s: float = REQUEST_S,
    ) -> None:
        self._max_calls = max_calls
        self._max_unread_bytes = max_unread_bytes
        self._uncounted_streams = uncounted_streams
        self._request_s = request_s
        self._receiving = Turns(most=RECEIVED_AT_ONCE)
        self._calls: Counter[str] = Counter()
        self._unread_bytes: Counter[str] = Counter()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Have a call's handler run within what its client may have under way."""
        found = await continuation(handler_call_details)
        if found is None:
            return None  # there is no such method
        handler = cast("Handler", found)
        if handler.request_streaming:
            return _streamed(self._converse, handler)
        if not handler.response_streaming:
            return _streamed(self._answer, handler)
        is_uncounted = handler_call_details.method in self._uncounted_streams
        return _streamed(self._open if is_uncounted else self._stream, handler)

    async def _answer(self, handler: Handler, _requests: object, context: Context) -> None:
        client = _client(context)
        with self._under_way(client):
            answer = await handler.unary_unary(await self._request(client, handler, context), context)
            if answer is None:
                return  # the call has its status
            serialized = handler.response_serializer(answer)
            with self._unread(client, len(serialized)):
                await context.write(serialized)

    async def _stream(self, handler: Handler, requests: object, context: Context) -> None:
        with self._under_way(_client(context)):
            await self._open(handler, requests, context)

    async def _open(self, handler: Handler, _requests: object, context: Context) -> None:
        client = _client(context)
        with self._under_way(client):
            request = await self._request(client, handler, context)
        await handler.unary_stream(request, context)

    async def _converse(self, handler: Handler, requests: object, context: Context) -> None:
        with self._under_way(_client(context)):
            async for answer in handler.stream_stream(requests, context):
                await context.write(answer)

    @contextlib.contextmanager
    def _under_way(self, client: str) -> Iterator[None]:
        if self._calls[client] >= self._max_calls:
            raise refusals.exhausted(
                f"{self._max_calls} calls of {client} are under way, {names.MAX_CLIENT_CALLS} allows no more",
                retry_ms=_RETRY_MS,
            )
        with _counted(self._calls, client, 1):
            yield

    @contextlib.contextmanager
    def _unread(self, client: str, num_bytes: int) -> Iterator[None]:
        unread = self._unread_bytes[client]
        if unread and unread + num_bytes > self._max_unread_bytes:
            raise refusals.exhausted(
                f"{unread} bytes of answers wait to be read by {client}, {names.MAX_CLIENT_BYTES} allows "
                f"{self._max_unread_bytes}",
                retry_ms=_RETRY_MS,
            )
        with _counted(self._unread_bytes, client, num_bytes):
            yield

    async def _request(self, client: str, handler: Handler, context: Context) -> object:
        try:
            async with self._receiving.turn(client), asyncio.timeout(self._request_s):
                received = await context.read()
        except TimeoutError:
            raise refusals.out_of_time(f"the request did not arrive within {self._request_s:g} s") from None
        if not isinstance(received, bytes):
            raise refusals.undecodable("request: the call brings none")
        try:
            return handler.request_deserializer(received) if handler.request_deserializer else received
        except DecodeError:
            raise refusals.undecodable("request of this method") from None


def _streamed(serve: Serve, handler: Handler) -> grpc.RpcMethodHandler[Any, Any]:
    """Make a handler that is called before its request is received, and always ends with a status."""

    async def behave(requests: object, context: Context) -> None:
        try:
            await serve(handler, requests, context)
        except refusals.RefusalError as refusal:
            await refusal.abort(context)
        except grpc.aio.InternalError as error:
            # Sending fails where the client left a moment before: the call is cancelled, only nobody said so yet.
            _log.debug("a call is given up: %s", error)
            raise asyncio.CancelledError from error

    return grpc.stream_stream_rpc_method_handler(
        behave,
        request_deserializer=handler.request_deserializer if handler.request_streaming else _same,
        response_serializer=handler.response_serializer if handler.response_streaming else _same,
    )


def _same(message: bytes) -> bytes:
    return message


def _client(context: Context) -> str:
    """Name whom a call is from: who brought a token, or else the peer."""
    if current_caller() is ANYONE:
        set_caller(peer_caller(context.peer(), context.auth_context()))
    return current_caller().name


@contextlib.contextmanager
def _counted(counter: Counter[str], client: str, amount: int) -> Iterator[None]:
    counter[client] += amount
    try:
        yield
    finally:
        counter[client] -= amount
        if not counter[client]:
            del counter[client]
