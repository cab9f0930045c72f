"""Shows that each record is one line or one JSON object with its fields, whatever the record holds."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner_service.logs.fields import BoundFields, Value, afresh, bound, fields
from planner_service.logs.formats import LONGEST_VALUE, JsonLines, TextLines

MARKS = [
    "\n",
    "\r",
    "\r\n",
    "\x00",
    "\x1b[2J",
    "\x85",
    "\u2028",
    "\u2029",
    "\u202e",
    "\u2066",
    "\u200f",
    "\x7f",
    "\ud800",
]
FORGED = "2026-01-01 00:00:00,000 CRITICAL planner_service: all is lost"


def written(
    formatter: logging.Formatter, message: str, /, *arguments: object, error: bool = False, **more: Value
) -> str:
    """What a formatter makes of one line."""
    log = logging.Logger("planner_service.of_test")
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    handler = Keep()
    handler.addFilter(BoundFields())
    handler.setFormatter(formatter)
    log.addHandler(handler)
    log.error(message, *arguments, exc_info=error, extra=fields(**more))
    (line,) = lines
    return line


def parsed(message: str, /, *arguments: object, error: bool = False, **more: Value) -> dict[str, Any]:
    line = written(JsonLines(), message, *arguments, error=error, **more)
    assert line.isascii()
    assert line.isprintable()
    made: dict[str, Any] = json.loads(line)
    return made


def test_text_ends_with_the_fields() -> None:
    line = written(TextLines(), "planned %d", 3, job="a-b/c", attempt=1, replica=0, iteration=7, ours=True, none=None)
    assert line.endswith(
        " ERROR planner_service.of_test: planned 3 job=a-b/c attempt=1 replica=0 iteration=7 ours=true"
    )


def test_json_holds_fields_with_their_types() -> None:
    made = parsed("planned %d", 3, job="a", attempt=1, share=0.5, ours=False, none=None)
    assert datetime.fromisoformat(made["timestamp"]).tzinfo == UTC
    assert len(made.pop("timestamp")) == len("2026-01-01T00:00:00.000Z")
    assert made == {
        "level": "ERROR",
        "logger": "planner_service.of_test",
        "message": "planned 3",
        "job": "a",
        "attempt": 1,
        "share": 0.5,
        "ours": False,
    }


def test_fields_never_replace_what_every_line_has() -> None:
    assert parsed("what was said", message="another", level="DEBUG")["message"] == "what was said"
    assert parsed("what was said", level="DEBUG")["level"] == "ERROR"


@pytest.mark.parametrize("mark", MARKS)
def test_no_mark_begins_a_line_or_is_written_as_it_is(mark: str) -> None:
    held = f"a{mark}{FORGED}"
    for line in (written(TextLines(), held), written(TextLines(), "%s", held), written(TextLines(), "m", job=held)):
        assert line.isprintable()
        assert len(line.splitlines()) == 1
        assert mark not in line
    made = parsed("%s", held, job=held)
    assert made["message"] == made["job"] == held


@given(st.text())
def test_no_text_breaks_a_line_or_ends_a_value(text: str) -> None:
    line = written(TextLines(), text, job=text, iteration=1)
    assert line.isprintable()
    assert line.endswith(" iteration=1")
    made = parsed("%s", text, job=text, iteration=1)
    assert (made["message"], made["job"], made["iteration"]) == (text, text[:LONGEST_VALUE], 1)


@pytest.mark.parametrize("held", ["", "a b", 'a" iteration=2', "a=b", "a'b", "a\\b", "naïve"])
def test_values_that_might_be_misread_are_quoted(held: str) -> None:
    line = written(TextLines(), "m", job=held, iteration=1)
    _, _, value = line.removesuffix(" iteration=1").partition(" job=")
    assert json.loads(value) == held


def test_long_values_are_cut() -> None:
    for held in (parsed("m", job="x" * 100_000)["job"], written(TextLines(), "m", job="x" * 100_000).split("job=")[1]):
        assert held == "x" * (LONGEST_VALUE - 3) + "..."


def test_tracebacks_are_indented_in_text_and_a_field_in_json() -> None:
    try:
        raise LookupError(f"lost\n{FORGED}\x1b[2J")
    except LookupError:
        first, *more = written(TextLines(), "m", error=True, job="a").split("\n")
        made = parsed("m", error=True, job="a")
    assert first.endswith(": m job=a")
    assert more[0] == "    Traceback (most recent call last):"
    assert all(line.startswith("    ") and line.isprintable() for line in more)
    assert f"    {FORGED}\\x1b[2J" in more
    assert made["exception"].startswith("Traceback (most recent call last):")
    assert made["exception"].endswith(f"LookupError: lost\n{FORGED}\x1b[2J")
    assert (made["message"], made["job"]) == ("m", "a")


def test_a_traceback_is_written_by_each_format_in_its_own_way() -> None:
    """Python's formatter keeps a traceback with the record, in the form of whoever formatted it first."""
    try:
        raise LookupError("lost")
    except LookupError:
        record = logging.LogRecord("a", logging.ERROR, "", 0, "m", None, exc_info=sys.exc_info())
    BoundFields().filter(record)
    assert "\n    LookupError: lost" in TextLines().format(record)
    assert json.loads(JsonLines().format(record))["exception"].endswith("\nLookupError: lost")
    assert "\n    LookupError: lost" in TextLines().format(record)


def test_bound_fields_are_those_of_the_block_and_a_lines_own_win() -> None:
    with bound(job="a", attempt=1):
        with bound(attempt=2, iteration=3):
            assert _fields_of_line(iteration=4, rank=0) == {"job": "a", "attempt": 2, "iteration": 4, "rank": 0}
        assert _fields_of_line() == {"job": "a", "attempt": 1}
        with afresh(method="Plan"):
            assert _fields_of_line() == {"method": "Plan"}
    assert _fields_of_line() == {}


def _fields_of_line(**more: Value) -> dict[str, Any]:
    made = parsed("m", **more)
    return {name: made[name] for name in made if name not in {"timestamp", "level", "logger", "message"}}
