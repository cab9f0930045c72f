"""Addresses of planners: what is read, what is refused, and which of them never leave the machine."""

from __future__ import annotations

import pytest

from trainer_agent.endpoint import Endpoint


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
