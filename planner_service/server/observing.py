"""Every call of the contract, refused ones among them, with a span and with its method in the lines about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio

from planner_service import logs, tracing
from planner_service.server.contract import SERVICE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Handler = grpc.RpcMethodHandler[Any, Any]
    Behaviour = Callable[[Any, grpc.aio.ServicerContext[object, object]], Awaitable[object]]

_METHODS: Final = frozenset(method.name for method in SERVICE.methods)
_MAKERS: Final = {
    (False, False): ("unary_unary", grpc.unary_unary_rpc_method_handler),
    (False, True): ("unary_stream", grpc.unary_stream_rpc_method_handler),
    (True, True): ("stream_stream", grpc.stream_stream_rpc_method_handler),
}


class Observing(grpc.aio.ServerInterceptor):
    """Sees a call from its first moment to its last; goes before other interceptors, which may refuse it."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Have a call's handler observed."""
        handler = await continuation(handler_call_details)
        service, _, called = handler_call_details.method.removeprefix("/").rpartition("/")
        if handler is None or service != SERVICE.full_name:
            return handler
        # Of what clients write there, nothing else reaches the log.
        method = called if called in _METHODS else "unknown"
        metadata = tuple(handler_call_details.invocation_metadata or ())
        kind, make = _MAKERS[handler.request_streaming, handler.response_streaming]
        behaviour: Behaviour = getattr(handler, kind)

        async def observed(request: object, context: grpc.aio.ServicerContext[object, object]) -> object:
            with logs.bound(method=method), tracing.tracer().call(service, method, metadata):
                return await behaviour(request, context)

        made: Handler = make(
            observed,
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )
        return made
