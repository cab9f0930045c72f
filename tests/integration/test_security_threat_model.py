"""Shows that every line of the threat model names tests, and that these are there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "threat-model.md").read_text()
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
HEADER = re.compile(r"^\| .*\| shown by \|$")


@cache
def functions_of(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def lines_with_defences() -> list[str]:
    """Rows of the tables whose last column names tests."""
    rows, inside = [], False
    for line in TEXT.splitlines():
        if HEADER.match(line):
            inside = True
        elif not line.startswith("|"):
            inside = False
        elif inside and not line.startswith("| ---"):
            rows.append(line)
    return rows


def test_there_are_lines() -> None:
    assert len(lines_with_defences()) > 40
    assert TEXT.count("shown by |") >= 8


@pytest.mark.parametrize("line", lines_with_defences())
def test_line_names_its_tests(line: str) -> None:
    assert line.count("|") == 4, "a cell is missing, or one too many"
    assert NAMED.search(line.rpartition(" | ")[2])


@pytest.mark.parametrize(("path", "name"), sorted(set(NAMED.findall(TEXT))))
def test_named_test_is_there(path: str, name: str) -> None:
    assert name.startswith("test_")
    assert name in functions_of(path)


def test_no_test_is_named_in_another_way() -> None:
    assert len(re.findall(r"::test_", TEXT)) == len(NAMED.findall(TEXT))
