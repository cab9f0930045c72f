"""Shows who may do what by a token, and that a token that is withdrawn allows nothing any more."""

from __future__ import annotations

import hashlib

import pytest

from planner_service.access import Caller, Role, Tokens, roles_for
from planner_service.access.entries import TokenEntry
from planner_service.access.permissions import ROLES_OF_METHODS
from planner_service.server.contract import SERVICE

READING = {"ListJobs", "GetJob", "GetPlan"}


def entry(
    name: str, *tokens: str, roles: tuple[Role, ...] = (Role.TRAINER,), jobs: tuple[str, ...] = ("a-*",)
) -> TokenEntry:
    digests = tuple(hashlib.sha256(token.encode()).digest() for token in tokens)
    return TokenEntry(name=name, digests=digests, roles=frozenset(roles), jobs=jobs)


def test_old_and_new_token_stand_for_the_same_caller() -> None:
    tokens = Tokens([entry("one", "old", "new"), entry("two", "other", roles=(Role.VIEWER,), jobs=("*",))])
    for token in ("old", "new"):
        caller = tokens.caller(token)
        assert caller is not None
        assert (caller.name, caller.roles, caller.jobs) == ("token:one", {Role.TRAINER}, ("a-*",))
        assert caller.token_digest == hashlib.sha256(token.encode()).digest()
    assert tokens.caller("other").name == "token:two"


@pytest.mark.parametrize("token", ["", "ol", "old ", "OLD", hashlib.sha256(b"old").hexdigest(), "ö" * 5000])
def test_anything_else_is_nobody(token: str) -> None:
    assert Tokens([entry("one", "old")]).caller(token) is None


@pytest.mark.parametrize(
    ("after", "goes_on"),
    [
        ([entry("one", "token")], True),
        ([entry("renamed", "other", "token")], True),
        ([entry("one", "other")], False),
        ([entry("one", "token", roles=(Role.VIEWER,))], False),
        ([entry("one", "token", roles=(Role.OPERATOR,))], True),
        ([entry("one", "token", jobs=("a-2",))], False),
        ([entry("one", "token", jobs=("a-1", "b"))], True),
    ],
)
def test_open_stream_goes_on_where_it_could_be_opened_again(after: list[TokenEntry], goes_on: bool) -> None:
    caller = Tokens([entry("one", "token")]).caller("token")
    assert caller is not None
    assert Tokens(after).still_allow(caller, "StreamSchedules", "a-1") is goes_on


def test_callers_without_a_token_are_none_of_the_access_files() -> None:
    caller = Caller(name="certificate:x", roles=frozenset({Role.OPERATOR}), jobs=("*",))
    assert Tokens([entry("one", "token")]).still_allow(caller, "StreamSchedules", "a-1")


def test_every_method_of_the_contract_has_its_roles() -> None:
    assert ROLES_OF_METHODS.keys() == {method.name for method in SERVICE.methods}
    for method, roles in ROLES_OF_METHODS.items():
        assert Role.OPERATOR in roles
        assert (Role.VIEWER in roles) == (method in READING)
    assert roles_for("Unheard") == {Role.OPERATOR}


@pytest.mark.parametrize(
    ("patterns", "job", "may"),
    [
        (("a",), "a", True),
        (("a",), "ab", False),
        (("a*",), "a", True),
        (("a*",), "ab", True),
        (("a*",), "b", False),
        (("b", "*"), "anything", True),
        (("a.*",), "abc", False),
    ],
)
def test_jobs_by_name_or_beginning(patterns: tuple[str, ...], job: str, may: bool) -> None:
    assert Caller(name="x", roles=frozenset(), jobs=patterns).may_touch(job) is may
