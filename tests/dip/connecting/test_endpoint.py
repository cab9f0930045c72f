"""Addresses of planners, one or several: what is read, what is refused, and which of them never leave the machine."""

from __future__ import annotations

import pytest
from dip.connecting import Endpoint, Endpoints


@pytest.mark.parametrize(
    ("text", "local"),
    [
        ("127.0.0.1:50061", True),
        ("localhost:1", True),
        ("[::1]:65535", True),
        ("unix:///run/dip/planner.sock", True),
        ("planner.train.svc.cluster.local:50061", False),
        ("10.0.0.7:50061", False),
        ("[2001:db8::7]:50061", False),
    ],
)
def test_addresses_are_kept_as_they_are_written(text: str, local: bool) -> None:
    endpoint = Endpoint.parse(text)
    assert endpoint.target == str(endpoint) == text
    assert endpoint.local is local


@pytest.mark.parametrize(
    "text",
    [
        "",
        "planner",
        ":50061",
        "planner:",
        "planner:0",
        "planner:65536",
        "planner:port",
        "http://planner:50061",
        "dns:///planner:50061",
        "planner:50061/path",
        "::1:50061",
        "unix:planner.sock",
        "unix://planner.sock",
        "unix:///",
        "unix:///run/",
        "planner :50061",
    ],
)
def test_anything_else_is_refused_saying_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be host:port .* or unix:///path") as caught:
        Endpoint.parse(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["127.0.0.1:50061", "unix:///run/dip/planner.sock,planner-0.train:50061,[::1]:50061"],
)
def test_several_addresses_keep_their_order(text: str) -> None:
    endpoints = Endpoints.parse(text)
    assert [str(endpoint) for endpoint in endpoints] == text.split(",")
    assert list(endpoints) == [Endpoint.parse(part) for part in text.split(",")]
    assert len(endpoints) == len(text.split(","))
    assert str(endpoints) == text


@pytest.mark.parametrize(
    ("text", "wrong", "number"),
    [
        ("planner:1,planner", "planner", 2),
        ("planner:1,,planner:2", "", 2),
        (",planner:1", "", 1),
        ("planner:1,", "", 2),
        ("planner:1, planner:2", " planner:2", 2),
        ("planner:1,planner:2,http://planner:3", "http://planner:3", 3),
    ],
)
def test_the_wrong_one_of_several_is_named(text: str, wrong: str, number: int) -> None:
    with pytest.raises(ValueError, match="must be host:port") as caught:
        Endpoints.parse(text)
    assert str(caught.value).startswith(repr(wrong))
    assert str(caught.value).endswith(f"number {number} of {text!r}")


def test_a_single_wrong_one_is_named_as_ever() -> None:
    with pytest.raises(ValueError, match=r"^'planner'; must be host:port .*sock$"):
        Endpoints.parse("planner")


def test_no_planner_is_named_twice() -> None:
    with pytest.raises(ValueError, match=r"^'planner:1' more than once in 'planner:1,other:1,planner:1'; must name"):
        Endpoints.parse("planner:1,other:1,planner:1")


def test_none_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="each"):
        Endpoints(each=())
