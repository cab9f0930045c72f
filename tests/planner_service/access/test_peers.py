"""Shows who a call is from where nobody brings a token, in words that limits and logs can hold."""

from __future__ import annotations

import pytest

from planner_service.access import Role, peer_caller


@pytest.mark.parametrize(
    ("peer", "name"),
    [
        ("ipv4:127.0.0.1:50061", "address:127.0.0.1"),
        ("ipv6:%5B::1%5D:50061", "address:::1"),
        ("ipv6:[fe80::1%25eth0]:50061", "address:fe80::1%eth0"),
        ("ipv6:%5B::ffff:10.0.0.7%5D:50061", "address:10.0.0.7"),
        ("ipv6:%5B::ffff:a%5D:50061", "address:::ffff:a"),
        ("unix:", "unix"),
        ("unix:/run/dip/planner.sock", "unix"),
    ],
)
def test_address_or_socket(peer: str, name: str) -> None:
    caller = peer_caller(peer, {})
    assert (caller.name, caller.roles, caller.may_touch("any")) == (name, {Role.OPERATOR}, True)


@pytest.mark.parametrize(
    ("context", "name"),
    [
        ({"x509_common_name": [b"trainer-7"]}, "certificate:trainer-7"),
        (
            {"x509_common_name": [b"cn"], "x509_subject_alternative_name": [b"spiffe://prod/ns/a/sa/t", b"second"]},
            "certificate:spiffe://prod/ns/a/sa/t",
        ),
        ({"x509_subject_alternative_name": [], "x509_common_name": [b""]}, "address:10.0.0.1"),
        ({"x509_common_name": [b"a\nb\x00\xff%"]}, "certificate:a%0Ab%00%FF%25"),
    ],
)
def test_certificate(context: dict[str, list[bytes]], name: str) -> None:
    assert peer_caller("ipv4:10.0.0.1:1", context).name == name


def test_long_names_are_cut_and_stay_apart() -> None:
    names = {peer_caller("unix:", {"x509_common_name": [b"\n" * 10_000 + end]}).name for end in (b"1", b"2")}
    assert [len(name) < 300 for name in names] == [True, True]
