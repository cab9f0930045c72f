"""An OpenTelemetry collector on loopback: takes spans over OTLP/HTTP and keeps them, or is slow, on request."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from opentelemetry.proto.common.v1.common_pb2 import AnyValue
    from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector:
    """Listens while its block lasts.

    Parameters
    ----------
    hangs
        Whether it takes requests and never answers them.

    Attributes
    ----------
    endpoint
        For OTEL_EXPORTER_OTLP_ENDPOINT.
    resources
        What senders said of themselves.
    """

    def __init__(self, *, hangs: bool = False) -> None:
        self.resources: list[dict[str, object]] = []
        self._spans: list[Span] = []
        self._came = threading.Condition()
        self._released = threading.Event()
        if not hangs:
            self._released.set()
        self.asked = threading.Event()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.asked.set()
                collector._released.wait()
                if self.path == "/v1/traces":
                    collector._take(ExportTraceServiceRequest.FromString(body))
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200 if self.path == "/v1/traces" else 404)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: object) -> None:
                """Nothing is written."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def spans(self, name: str = "", **attributes: object) -> list[Span]:
        """Return what has come, of that name and with those attributes."""
        with self._came:
            return [span for span in self._spans if _fits(span, name, attributes)]

    def wait(self, enough: Callable[[], bool]) -> None:
        """Wait until what has come is enough."""
        with self._came:
            assert self._came.wait_for(enough, PATIENCE_S), sorted(span.name for span in self._spans)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._released.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _take(self, request: ExportTraceServiceRequest) -> None:
        with self._came:
            for sent in request.resource_spans:
                self.resources.append({pair.key: value_of(pair.value) for pair in sent.resource.attributes})
                self._spans += [span for scope in sent.scope_spans for span in scope.spans]
            self._came.notify_all()


def attributes_of(span: Span) -> dict[str, object]:
    """Return a span's attributes."""
    return {pair.key: value_of(pair.value) for pair in span.attributes}


def value_of(value: AnyValue) -> object:
    """Return what an attribute holds."""
    kind = value.WhichOneof("value")
    return None if kind is None else getattr(value, kind)


def _fits(span: Span, name: str, attributes: dict[str, object]) -> bool:
    held = attributes_of(span)
    wanted = {f"dip.{key}": value for key, value in attributes.items()}
    return (not name or span.name == name) and all(held.get(key) == value for key, value in wanted.items())
