"""Shows that an access file means what it says or nothing, and that what is wrong with it is told without secrets."""

from __future__ import annotations

import contextlib
import hashlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner_service.access import AccessError, Role
from planner_service.access.entries import parse_entries

ONE, TWO = (hashlib.sha256(text.encode()).hexdigest() for text in ("one", "two"))
GOOD: dict[str, Any] = {"name": "a", "sha256": ONE, "roles": ["trainer"], "jobs": ["team-*"]}
SECRET = "hunter2-hunter2-hunter2"


def toml(*tables: dict[str, Any]) -> bytes:
    """Write entries; JSON's texts, numbers and lists are TOML's."""
    lines = []
    for table in tables:
        lines += ["[[tokens]]", *(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in table.items())]
    return "\n".join(lines).encode()


def without(field: str) -> dict[str, Any]:
    return {key: value for key, value in GOOD.items() if key != field}


def fault(content: bytes) -> str:
    with pytest.raises(AccessError) as caught:
        parse_entries(content, "DIP_ACCESS_FILE=/f")
    said = str(caught.value)
    assert said.startswith("DIP_ACCESS_FILE=/f: ")
    assert "\n" not in said
    return said.removeprefix("DIP_ACCESS_FILE=/f: ")


def test_good_file() -> None:
    content = toml(
        GOOD, {"name": "b.2_x", "sha256": [TWO.upper(), "0" * 64], "roles": ["viewer", "operator"], "jobs": ["*"]}
    )
    first, second = parse_entries(content, "here")
    assert (first.name, first.digests, first.roles, first.jobs) == (
        "a",
        (bytes.fromhex(ONE),),
        {Role.TRAINER},
        ("team-*",),
    )
    assert (second.digests, second.roles) == ((bytes.fromhex(TWO), bytes(32)), {Role.VIEWER, Role.OPERATOR})
    assert ONE not in repr(first)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "tokens: must be [[tokens]] tables, one at least"),
        (b"\xff", "is no UTF-8 text"),
        (b"[[tokens", "is no TOML: "),
        (b"tokens = []", "tokens: must be [[tokens]] tables, one at least"),
        (b"tokens = 'a'", "tokens: must be [[tokens]] tables, one at least"),
        (b"[tokens]\nname = 'a'", "tokens: must be [[tokens]] tables, one at least"),
        (b"open = true\n" + toml(GOOD), "'open' is not known; allowed are [[tokens]] tables alone"),
        (toml(GOOD | {"job": ["x"]}), "tokens[0] (a): 'job' is not known; allowed are name, sha256, roles, jobs"),
        (toml(without("name")), "tokens[0]: name: holds nothing, must be 1 to 63 letters"),
        (toml(GOOD | {"name": "a\nb"}), "tokens[0]: name: holds 'a\\nb', must be 1 to 63 letters"),
        (toml(GOOD | {"name": ""}), "tokens[0]: name: holds ''"),
        (toml(without("sha256")), "tokens[0] (a): sha256: must be 64 hex digits"),
        (toml(GOOD | {"sha256": []}), "tokens[0] (a): sha256: must be 64 hex digits"),
        (toml(GOOD | {"sha256": [ONE] * 9}), "tokens[0] (a): sha256: must be 64 hex digits"),
        (toml(GOOD | {"sha256": hashlib.sha256(b"").hexdigest()}), "tokens[0] (a): sha256: is that of an empty token"),
        (toml(without("roles")), "tokens[0] (a): roles: holds nothing, must be a list of trainer, viewer, operator"),
        (toml(GOOD | {"roles": []}), "tokens[0] (a): roles: holds []"),
        (toml(GOOD | {"roles": "trainer"}), "tokens[0] (a): roles: holds 'trainer', must be a list"),
        (toml(GOOD | {"roles": ["Trainer"]}), "tokens[0] (a): roles: holds ['Trainer']"),
        (toml(without("jobs")), "tokens[0] (a): jobs: holds nothing, must be a list of names of jobs"),
        (toml(GOOD | {"jobs": []}), "tokens[0] (a): jobs: holds []"),
        (toml(GOOD | {"jobs": [""]}), "tokens[0] (a): jobs: holds ['']"),
        (toml(GOOD | {"jobs": ["a*b"]}), "tokens[0] (a): jobs: holds ['a*b']"),
        (toml(GOOD | {"jobs": ["**"]}), "tokens[0] (a): jobs: holds ['**']"),
        (toml(GOOD | {"jobs": ["a?"]}), "tokens[0] (a): jobs: holds ['a?']"),
        (toml(GOOD, GOOD | {"sha256": TWO}), "tokens named 'a': there are 2, must be one"),
        (toml(GOOD, GOOD | {"name": "b"}), "tokens[1] (b): sha256: is that of tokens[0] (a) too"),
        (toml(GOOD | {"sha256": [ONE, ONE.upper()]}), "tokens[0] (a): sha256: is that of tokens[0] (a) too"),
    ],
)
def test_bad_file(content: bytes, says: str) -> None:
    assert says in fault(content)


@pytest.mark.parametrize(
    "table", [GOOD | {"sha256": SECRET}, GOOD | {"sha256": [SECRET]}, GOOD | {"token": SECRET}, GOOD | {"sha256": 5}]
)
def test_token_that_was_put_where_its_digest_belongs_is_not_told(table: dict[str, Any]) -> None:
    assert SECRET not in fault(toml(table))


def test_many_faults_are_counted() -> None:
    said = fault(toml(*({"name": f"n{i}"} for i in range(10))))
    assert said.count("; ") >= 4
    assert said.endswith("; and 25 more")


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_nothing_else_is_raised(content: bytes) -> None:
    with contextlib.suppress(AccessError):
        parse_entries(content, "here")


def test_deeply_nested_file_is_refused() -> None:
    assert fault(b"tokens = " + b"[" * 100_000)
