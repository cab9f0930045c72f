"""What is traced, and what stands in its place while nothing is.

The rooms of the planner know this file alone. What sends spans (`planner_service.tracing.sending`) is imported only
where it is asked for, and its packages are optional.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager

Value = str | int | float | bool


class Replica(Protocol):
    """Names a replica, as the store's keys do."""

    @property
    def job_id(self) -> str:
        """Of the job."""

    @property
    def attempt(self) -> int:
        """Of the job."""

    @property
    def replica(self) -> int:
        """Its number."""


class Batch(Protocol):
    """Names a batch, as the store's keys do."""

    @property
    def replica(self) -> Replica:
        """Whose it is."""

    @property
    def iteration(self) -> int:
        """What it is for."""


class Span(Protocol):
    """A stretch of work that is under way."""

    def set(self, **attributes: Value | None) -> None:
        """Say more about it; None is left out. Names get the prefix ``dip.``."""

    def event(self, name: str, *, ago_ms: int = 0, **attributes: Value) -> None:
        """Something happened in it, so many milliseconds ago."""

    def status(self, code: int, message: str = "") -> None:
        """Say with which gRPC status it ended."""


class Tracer(Protocol):
    """Makes spans. For use from one event loop."""

    def call(
        self, service: str, method: str, metadata: Iterable[tuple[str, str | bytes]]
    ) -> AbstractContextManager[Span]:
        """Trace a call in the block, as a part of its caller's trace where the metadata name one (W3C traceparent)."""

    def current(self) -> Span:
        """Return the span of the innermost block."""

    def submitted(self, batch: Batch) -> None:
        """Begin the trace of a batch, which the current call brought, from the call's beginning to now."""

    def planning(self, batch: Batch) -> AbstractContextManager[Span]:
        """Trace what a planner does about a batch that it has claimed, in the batch's trace."""

    def part(self, name: str) -> AbstractContextManager[Span]:
        """Trace a part of what the innermost block traces."""

    def delivered(self, replica: Replica, iteration: int, *, rank: int, ranks: int) -> None:
        """One of so many ranks has been sent its schedule."""

    def end(self) -> None:
        """Send what is not sent yet; may take as long as whoever takes it in."""


class _NoSpan:
    """A span that nobody sees."""

    def set(self, **attributes: Value | None) -> None:
        """Do nothing."""

    def event(self, name: str, *, ago_ms: int = 0, **attributes: Value) -> None:
        """Do nothing."""

    def status(self, code: int, message: str = "") -> None:
        """Do nothing."""


_NO_SPAN: Final = _NoSpan()


class _Off:
    """Traces nothing."""

    def call(
        self, service: str, method: str, metadata: Iterable[tuple[str, str | bytes]]
    ) -> AbstractContextManager[Span]:
        """Do nothing."""
        return nullcontext(_NO_SPAN)

    def current(self) -> Span:
        """Return a span that nobody sees."""
        return _NO_SPAN

    def submitted(self, batch: Batch) -> None:
        """Do nothing."""

    def planning(self, batch: Batch) -> AbstractContextManager[Span]:
        """Do nothing."""
        return nullcontext(_NO_SPAN)

    def part(self, name: str) -> AbstractContextManager[Span]:
        """Do nothing."""
        return nullcontext(_NO_SPAN)

    def delivered(self, replica: Replica, iteration: int, *, rank: int, ranks: int) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Do nothing."""


OFF: Final[Tracer] = _Off()
"""The tracer where nothing is traced."""

_current: Tracer = OFF


def tracer() -> Tracer:
    """Return what this process traces with."""
    return _current


def use(other: Tracer) -> Tracer:
    """Trace with another from now on; returns the one before."""
    global _current
    before, _current = _current, other
    return before
