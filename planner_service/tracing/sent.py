"""A span of OpenTelemetry, as the planner's rooms write to it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from opentelemetry import context as contexts
from opentelemetry import trace as otel
from opentelemetry.sdk.trace import ReadableSpan

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from planner_service.tracing.tracer import Value

PREFIX: Final = "dip."
STATUS: Final = "rpc.grpc.status_code"

_CANCELLED, _UNKNOWN = 1, 2
_FAULTS_OF_SERVER: Final = frozenset({2, 4, 12, 13, 14, 15})
"""Codes that say that the server failed, by OpenTelemetry's conventions: UNKNOWN, DEADLINE_EXCEEDED, UNIMPLEMENTED,
INTERNAL, UNAVAILABLE, DATA_LOSS."""


class SentSpan:
    """Writes to a span, which is sent once it has ended."""

    def __init__(self, span: otel.Span) -> None:
        self._span = span

    def set(self, **attributes: Value | None) -> None:
        """Say more about it; None is left out."""
        self._span.set_attributes(named(attributes))

    def event(self, name: str, *, ago_ms: int = 0, **attributes: Value) -> None:
        """Something happened in it, so many milliseconds ago."""
        self._span.add_event(name, named(attributes), time.time_ns() - ago_ms * 1_000_000)

    def status(self, code: int, message: str = "") -> None:
        """Say with which gRPC status it ended."""
        self._span.set_attribute(STATUS, code)
        if code in _FAULTS_OF_SERVER:
            self._span.set_status(otel.StatusCode.ERROR, message)


class CallSpan(SentSpan):
    """The span of a call: the current one in its block, and ended with it, whichever way the call ends."""

    def __enter__(self) -> CallSpan:
        """Make it the current one."""
        self._token = contexts.attach(otel.set_span_in_context(self._span))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        contexts.detach(self._token)
        if isinstance(self._span, ReadableSpan) and STATUS not in (self._span.attributes or {}):
            if error is None:
                self.status(0)
            elif isinstance(error, Exception):
                self._span.record_exception(error)
                self.status(_UNKNOWN, type(error).__name__)
            else:
                self.status(_CANCELLED)
        self._span.end()


def named(attributes: Mapping[str, Value | None]) -> dict[str, Value]:
    """Return attributes under the planner's names for them."""
    return {PREFIX + name: value for name, value in attributes.items() if value is not None}
