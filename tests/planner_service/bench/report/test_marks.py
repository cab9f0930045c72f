"""Shows that tables are renewed between their marks, that nothing else changes, and that broken marks are named."""

from __future__ import annotations

import pytest

from planner_service.bench.report.marks import MarkError, fill

TABLES = {"a": "| a |", "b": "| b |"}


def test_what_stands_between_marks_is_renewed() -> None:
    text = "Head\n<!-- bench:a -->\nold\n<!-- /bench -->\nmiddle\n<!-- bench:b --><!-- /bench -->\nend"
    filled = fill(text, TABLES)
    assert filled == (
        "Head\n<!-- bench:a -->\n\n| a |\n\n<!-- /bench -->\nmiddle\n<!-- bench:b -->\n\n| b |\n\n<!-- /bench -->\nend"
    )
    assert fill(filled, TABLES) == filled


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("no marks", "there is no mark"),
        ("<!-- bench:c --><!-- /bench -->", "mark names 'c', must be of a, b"),
        ("<!-- bench:a --> and no end", "<!-- bench:a --> is not closed"),
        ("<!-- bench:a --> <!-- bench:b --> <!-- /bench -->", "<!-- bench:a --> is not closed"),
    ],
)
def test_broken_marks_are_named(text: str, says: str) -> None:
    with pytest.raises(MarkError, match=says):
        fill(text, TABLES)
