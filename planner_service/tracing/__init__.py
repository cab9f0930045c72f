"""Spans of calls and batches, where the standard OTEL_* variables ask for them; nothing, at no cost, elsewhere."""

from planner_service.tracing.setup import start, stop
from planner_service.tracing.tracer import OFF, Batch, Replica, Span, Tracer, tracer, use

__all__ = ["OFF", "Batch", "Replica", "Span", "Tracer", "start", "stop", "tracer", "use"]
