"""How a record is written: as a line for people, or as one JSON object.

Names, reasons and messages come from clients. Whatever they hold, they begin no line, end none, and move no cursor:
every character that is not printable is written as an escape sequence, line separators and marks of writing direction
among them.
"""

from __future__ import annotations

import json
import logging
import re
from datetime import UTC, datetime
from typing import Any, Final

from pythonjsonlogger.json import JsonFormatter

from planner_service.logs.fields import OUTPUT, fields_of

LONGEST_VALUE: Final = 1_000
"""Characters of a field; the rest is left out."""

_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_INDENT: Final = "    "
_NEEDS_QUOTES: Final = re.compile(r"""[\s="'\\]|[^\x20-\x7e]|^$""")


class TextLines(logging.Formatter):
    """Time, level, logger and message, then `` name=value`` for each field; tracebacks are indented below."""

    def __init__(self) -> None:
        super().__init__(_FORMAT)

    def format(self, record: logging.LogRecord) -> str:
        """Write the line, and below it what else there is."""
        record.message, record.asctime = record.getMessage(), self.formatTime(record)
        held = fields_of(record)
        output = str(held.pop(OUTPUT, ""))
        pairs = (f" {name}={text_of(value)}" for name, value in held.items())
        lines = [escaped(self.formatMessage(record)) + "".join(pairs)]
        if record.exc_info:
            lines += self.formatException(record.exc_info).split("\n")
        elif record.exc_text:
            lines += record.exc_text.split("\n")
        if record.stack_info:
            lines += record.stack_info.split("\n")
        lines += output.splitlines()
        # Each further line is indented: none passes for a line of the log.
        return f"\n{_INDENT}".join([lines[0], *map(escaped, lines[1:])])


class JsonLines(JsonFormatter):
    """One object a line: timestamp (RFC 3339, UTC, milliseconds), level, logger, message, fields, exception."""

    def add_fields(self, data: dict[str, Any], record: logging.LogRecord, more: dict[str, Any]) -> None:
        """Fill in what is written of a record."""
        moment = datetime.fromtimestamp(record.created, UTC)
        data["timestamp"] = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        data["level"] = record.levelname
        data["logger"] = record.name
        data["message"] = record.message
        for name, value in fields_of(record).items():
            data.setdefault(name, _cut(value) if isinstance(value, str) and name != OUTPUT else value)
        for name, ours in (("exc_info", "exception"), ("stack_info", "stack")):
            if more.get(name):
                data[ours] = more[name]


def escaped(text: str) -> str:
    """Return a text with an escape sequence for each character that is not printable."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else _escape(letter) for letter in text)


def text_of(value: str | int | float | bool) -> str:
    """Return a field's value for a line: quoted where it would not end at the next space otherwise."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            short = _cut(value)
            return escaped(json.dumps(short, ensure_ascii=False)) if _NEEDS_QUOTES.search(short) else short
        case _:
            return str(value)


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 3] + "..."
