"""What a line is about, as fields: said with the line, or once for all lines of a stretch of code.

The names that every line about a batch carries are ``job``, ``attempt``, ``replica`` and ``iteration``.
"""

from __future__ import annotations

import contextlib
import logging
from contextvars import ContextVar
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Value = str | int | float | bool | None
"""What a field may hold; a field that holds None is left out."""

ATTRIBUTE: Final = "dip_fields"
"""Name of the fields among the attributes of a record."""

OUTPUT: Final = "output"
"""Name of the field that holds what another program wrote: as many lines as it likes, and never cut."""

_bound: ContextVar[Mapping[str, Value]] = ContextVar("log_fields", default=MappingProxyType({}))


def fields(**values: Value) -> dict[str, object]:
    """Fields of one line: ``log.info("planned", extra=fields(job=job_id))``."""
    return {ATTRIBUTE: values}


@contextlib.contextmanager
def bound(**values: Value) -> Iterator[None]:
    """Give every line of this task, and of tasks and threads that begin in the block, these fields besides its own."""
    token = _bound.set({**_bound.get(), **values})
    try:
        yield
    finally:
        _bound.reset(token)


def bind(**values: Value) -> None:
    """Bind further fields until the innermost block of `bound` or `afresh` ends."""
    _bound.set({**_bound.get(), **values})


@contextlib.contextmanager
def afresh(**values: Value) -> Iterator[None]:
    """As `bound`, without what is bound around the block: for what is not about whoever happened to begin it."""
    token = _bound.set(values)
    try:
        yield
    finally:
        _bound.reset(token)


def bound_fields() -> Mapping[str, Value]:
    """Return what is bound now."""
    return _bound.get()


class BoundFields(logging.Filter):
    """Adds the fields that are bound to a record's own, which win; lets every record pass."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Write the record's fields into its attribute."""
        setattr(record, ATTRIBUTE, {**_bound.get(), **getattr(record, ATTRIBUTE, {})})
        return True


def fields_of(record: logging.LogRecord) -> dict[str, str | int | float | bool]:
    """Return what a record is about, without what is left out."""
    held: Mapping[str, Value] = getattr(record, ATTRIBUTE, {})
    return {name: value for name, value in held.items() if value is not None}
