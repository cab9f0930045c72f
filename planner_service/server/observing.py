"""Every call of the contract, refused ones among them, with a span and with its method in the lines about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import grpc
import grpc.aio

from planner_service import logs, tracing
from planner_service.server.contract import SERVICE
from planner_service.server.wrapping import wrapped

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from planner_service.server.wrapping import Behaviour, Handler

_METHODS: Final = frozenset(method.name for method in SERVICE.methods)


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

        def observed(behaviour: Behaviour) -> Behaviour:
            async def behave(request: object, context: grpc.aio.ServicerContext[object, object]) -> object:
                with logs.bound(method=method), tracing.tracer().call(service, method, metadata):
                    return await behaviour(request, context)

            return behave

        return wrapped(handler, observed)
