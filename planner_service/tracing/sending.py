"""Spans sent with OpenTelemetry's SDK, over OTLP: in a thread of its own, so that nothing ever waits for a collector.

Variables that the SDK reads apply: OTEL_EXPORTER_OTLP_* (where to, headers, certificates, time-out), OTEL_BSP_* (how
many spans wait, how often they are sent), OTEL_TRACES_SAMPLER (which traces are taken), OTEL_RESOURCE_ATTRIBUTES and
OTEL_SERVICE_NAME (what is said of this planner). Spans that a slow collector leaves no room for are dropped.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from collections import OrderedDict
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, Self

from opentelemetry import trace as otel
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from planner_service.tracing.deliveries import Deliveries
from planner_service.tracing.identity import Identity, identity_of
from planner_service.tracing.quiet import OnceInAWhile
from planner_service.tracing.sent import CallSpan, SentSpan, named

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from planner_service.tracing.tracer import Batch, Replica, Value

SCOPE: Final = "dip-planner"
ROOT: Final = "submit"

_MOST_SUBMITTED: Final = 4_096
_PROPAGATED: Final = ("traceparent", "tracestate")
_NOISY: Final = (
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.exporter.otlp.common.http",
    "opentelemetry.sdk._shared_internal",
    "urllib3.connectionpool",
)


class SendingTracer:
    """Makes spans that are sent. For use from one event loop, but for `end`.

    Parameters
    ----------
    provider
        Takes finished spans; made with `Ids`.
    ids
        The provider's.
    """

    def __init__(self, provider: TracerProvider, ids: Ids) -> None:
        self._provider = provider
        self._ids = ids
        self._tracer = provider.get_tracer(SCOPE, version(SCOPE))
        self._propagator = TraceContextTextMapPropagator()
        self._submitted: OrderedDict[Identity, int] = OrderedDict()
        self._deliveries = Deliveries(self._begin_delivery)

    @classmethod
    def from_environment(cls) -> Self:
        """Make one that sends where the environment says.

        Raises
        ------
        ValueError
            A variable cannot be used.
        """
        for name in _NOISY:
            logging.getLogger(name).addFilter(OnceInAWhile())
        ids = Ids()
        provider = TracerProvider(resource=_resource(), id_generator=ids, shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        return cls(provider, ids)

    def call(self, service: str, method: str, metadata: Iterable[tuple[str, str | bytes]]) -> CallSpan:
        """Trace a call in the block, as a part of its caller's trace where the metadata name one."""
        carrier = {name: value for name, value in metadata if name in _PROPAGATED and isinstance(value, str)}
        span = self._tracer.start_span(
            f"{service}/{method}",
            context=self._propagator.extract(carrier, context=Context()),
            kind=otel.SpanKind.SERVER,
            attributes={"rpc.system": "grpc", "rpc.service": service, "rpc.method": method},
        )
        return CallSpan(span)

    def current(self) -> SentSpan:
        """Return the span of the innermost block."""
        return SentSpan(otel.get_current_span())

    def submitted(self, batch: Batch) -> None:
        """Begin the trace of a batch, which the current call brought, from the call's beginning to now."""
        identity = identity_of(batch.replica, batch.iteration)
        if identity in self._submitted:
            return  # again, after its trainer had lost its stream, say
        call = otel.get_current_span()
        began_ns = call.start_time if isinstance(call, ReadableSpan) else None
        with self._ids.preset(identity):
            root = self._tracer.start_span(
                ROOT,
                context=Context(),
                attributes=_attributes_of(batch.replica, batch.iteration),
                links=[otel.Link(call.get_span_context())] if call.get_span_context().is_valid else [],
                start_time=began_ns,
            )
        root.end()
        call.add_link(root.get_span_context())
        self._submitted[identity] = time.time_ns()
        if len(self._submitted) > _MOST_SUBMITTED:
            self._submitted.popitem(last=False)

    @contextlib.contextmanager
    def planning(self, batch: Batch) -> Iterator[SentSpan]:
        """Trace what a planner does about a batch that it has claimed, in the batch's trace."""
        identity = identity_of(batch.replica, batch.iteration)
        below_root = self._below_root(identity)
        attributes = _attributes_of(batch.replica, batch.iteration)
        if submitted_ns := self._submitted.get(identity):
            self._tracer.start_span("wait", context=below_root, attributes=attributes, start_time=submitted_ns).end()
        with self._tracer.start_as_current_span("plan", context=below_root, attributes=attributes) as span:
            yield SentSpan(span)

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[SentSpan]:
        """Trace a part of what the innermost block traces."""
        with self._tracer.start_as_current_span(name) as span:
            yield SentSpan(span)

    def delivered(self, replica: Replica, iteration: int, *, rank: int, ranks: int) -> None:
        """One of so many ranks has been sent its schedule."""
        self._deliveries.sent(replica, iteration, rank=rank, ranks=ranks)

    def end(self) -> None:
        """Send what is not sent yet; may take as long as whoever takes it in."""
        self._deliveries.end()
        self._provider.shutdown()

    def _begin_delivery(self, replica: Replica, iteration: int) -> otel.Span:
        below_root = self._below_root(identity_of(replica, iteration))
        return self._tracer.start_span("deliver", context=below_root, attributes=_attributes_of(replica, iteration))

    def _below_root(self, identity: Identity) -> Context:
        """Where spans of a batch belong, whichever planner took it in: all decide alike whether it is taken."""
        sampled = self._provider.sampler.should_sample(Context(), identity.trace, ROOT)
        taken = sampled.decision is Decision.RECORD_AND_SAMPLE
        flags = otel.TraceFlags(otel.TraceFlags.SAMPLED if taken else otel.TraceFlags.DEFAULT)
        root = otel.SpanContext(identity.trace, identity.root, is_remote=True, trace_flags=flags)
        return otel.set_span_in_context(otel.NonRecordingSpan(root), Context())


class Ids(RandomIdGenerator):
    """Numbers of spans and traces: random, but for the root of a batch's trace."""

    def __init__(self) -> None:
        super().__init__()
        self._preset: Identity | None = None

    @contextlib.contextmanager
    def preset(self, identity: Identity) -> Iterator[None]:
        """Give the one span that is begun in the block these numbers."""
        self._preset = identity
        try:
            yield
        finally:
            self._preset = None

    def generate_span_id(self) -> int:
        """Return a number for a span."""
        return super().generate_span_id() if self._preset is None else self._preset.root

    def generate_trace_id(self) -> int:
        """Return a number for a trace."""
        return super().generate_trace_id() if self._preset is None else self._preset.trace


def _resource() -> Resource:
    """What is said of this planner, unless the environment says otherwise."""
    ours = {
        SERVICE_NAME: SCOPE,
        SERVICE_VERSION: version(SCOPE),
        SERVICE_INSTANCE_ID: f"{socket.gethostname()}-{os.getpid()}",
    }
    theirs = Resource.create().attributes
    if str(theirs.get(SERVICE_NAME, "")).startswith("unknown_service"):
        theirs = {name: value for name, value in theirs.items() if name != SERVICE_NAME}
    return Resource({**ours, **theirs})


def _attributes_of(replica: Replica, iteration: int) -> dict[str, Value]:
    return named(
        {"job": replica.job_id, "attempt": replica.attempt, "replica": replica.replica, "iteration": iteration}
    )
