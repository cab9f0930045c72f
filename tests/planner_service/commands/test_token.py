"""Shows that ``dip token`` makes tokens that a planner lets in, and tells them to their owner alone."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import pytest

from planner_service.access import Role, Tokens
from planner_service.access.entries import parse_entries

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ARGUMENTS = ("token", "--name", "team-a", "--role", "trainer", "--role", "viewer", "--job", "team-a-*", "--job", "x")
RANDOM_256_BITS = re.compile(r"[A-Za-z0-9_-]{43}\n")


def test_entry_lets_the_token_in_as_it_says(dip: Callable[..., Any], tmp_path: Path) -> None:
    ran = dip(*ARGUMENTS, "--out", tmp_path / "token")
    assert (ran.code, ran.err) == (0, "")
    token = (tmp_path / "token").read_text()
    assert RANDOM_256_BITS.fullmatch(token)
    assert token.strip() not in ran.out
    caller = Tokens(parse_entries(ran.out.encode(), "printed")).caller(token.strip())
    assert caller is not None
    assert (caller.name, caller.roles, caller.jobs) == (
        "token:team-a",
        {Role.TRAINER, Role.VIEWER},
        ("team-a-*", "x"),
    )


def test_printed_token_is_no_part_of_the_entry(dip: Callable[..., Any]) -> None:
    ran = dip("token", "--name", "me", "--job", "*")
    assert ran.code == 0
    assert RANDOM_256_BITS.fullmatch(ran.err)
    caller = Tokens(parse_entries(ran.out.encode(), "printed")).caller(ran.err.strip())
    assert caller is not None
    assert caller.roles == {Role.TRAINER}


def test_no_two_are_alike(dip: Callable[..., Any]) -> None:
    assert len({dip(*ARGUMENTS).err for _ in range(3)}) == 3


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o777])
def test_file_is_its_owners_alone_whatever_the_mask(dip: Callable[..., Any], tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        assert dip(*ARGUMENTS, "--out", tmp_path / "token").code == 0
    finally:
        os.umask(before)
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600


def test_file_that_is_there_is_kept(dip: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "token").write_text("in use")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("token", "link"):
        ran = dip(*ARGUMENTS, "--out", tmp_path / name)
        assert ran.code == 2
        assert "is there already" in ran.err
    assert (tmp_path / "token").read_text() == "in use"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--job", "*"), "--name"),
        (("--name", "me"), "--job"),
        (("--name", 'a"b', "--job", "*"), "name: holds 'a\"b', must be 1 to 63 letters"),
        (("--name", "me", "--job", "a*b"), "jobs: holds ['a*b'], must be a list of names of jobs"),
        (("--name", "me", "--job", "*", "--role", "root"), "roles: holds ['root'], must be a list of trainer, viewer,"),
        (("--name", "me", "--job", "*", "--out", "/no/such/place"), "cannot write /no/such/place: No such file"),
    ],
)
def test_what_cannot_be_made_is_explained(dip: Callable[..., Any], arguments: tuple[str, ...], says: str) -> None:
    ran = dip("token", *arguments)
    assert ran.code == 2
    assert says in ran.err
    assert ran.out == ""
