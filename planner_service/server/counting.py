"""Counts calls of the contract: how they ended, and how long they took."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING

import grpc
import grpc.aio

from planner_service.metrics import CallMetrics
from planner_service.server.contract import SERVICE
from planner_service.server.wrapping import wrapped

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from planner_service.server.wrapping import Behaviour, Handler


class Counting(grpc.aio.ServerInterceptor):
    """Measures every call, those that other interceptors turn away too: it comes before them."""

    def __init__(self) -> None:
        self._methods = {
            f"/{SERVICE.full_name}/{method.name}": CallMetrics(method.name, streams=method.server_streaming)
            for method in SERVICE.methods
        }

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Let a call go on, measured; names that are not the contract's are not ours to count."""
        handler = await continuation(handler_call_details)
        method = self._methods.get(handler_call_details.method)
        return handler if handler is None or method is None else wrapped(handler, partial(_counted, method))


def _counted(method: CallMetrics, behaviour: Behaviour) -> Behaviour:
    """Do the same, and note its end."""

    async def behave(request: object, context: grpc.aio.ServicerContext[object, object]) -> object:
        began_s = time.monotonic()
        code = grpc.StatusCode.UNKNOWN.name  # what gRPC makes of an error that nobody foresaw
        try:
            answer = await behaviour(request, context)
            code = grpc.StatusCode.OK.name
        except grpc.aio.AbortError:
            code = context.code().name
            raise
        except asyncio.CancelledError:
            code = grpc.StatusCode.CANCELLED.name
            raise
        finally:
            method.ended(code, time.monotonic() - began_s)
        return answer

    return behave
