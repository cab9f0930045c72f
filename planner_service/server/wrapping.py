"""Handlers around handlers: of the same kind, with something done before and after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import grpc

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Handler = grpc.RpcMethodHandler[Any, Any]
    Behaviour = Callable[[Any, grpc.aio.ServicerContext[object, object]], Awaitable[object]]

_KINDS: Final = {
    (False, False): ("unary_unary", grpc.unary_unary_rpc_method_handler),
    (False, True): ("unary_stream", grpc.unary_stream_rpc_method_handler),
    (True, True): ("stream_stream", grpc.stream_stream_rpc_method_handler),
}


def wrapped(handler: Handler, wrap: Callable[[Behaviour], Behaviour]) -> Handler:
    """Make a handler that behaves as `wrap` makes it of what the other does.

    Behaviours that stream write to their context and yield nothing.
    """
    kind, make = _KINDS[handler.request_streaming, handler.response_streaming]
    made: Handler = make(
        wrap(getattr(handler, kind)),
        request_deserializer=handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )
    return made
