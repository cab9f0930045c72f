"""Shows how the address of a Redis is read, and that what is wrong with one is said without repeating it."""

from __future__ import annotations

import pytest

from planner_service.store import StoreError
from planner_service.store.redis_address import RedisAddress


@pytest.mark.parametrize(
    ("url", "options", "shown"),
    [
        ("redis://host", {"host": "host", "port": 6379, "db": 0}, "redis://host:6379/0"),
        ("redis://host:1/3", {"host": "host", "port": 1, "db": 3}, "redis://host:1/3"),
        ("redis://[::1]:7/", {"host": "::1", "port": 7, "db": 0}, "redis://[::1]:7/0"),
        (
            "redis://:p%40ss@host",
            {"host": "host", "port": 6379, "db": 0, "password": "p@ss"},
            "redis://host:6379/0",
        ),
        (
            "rediss://user:pass@host:9/1?ssl_ca_certs=/ca.pem&ssl_keyfile=/a%20b",
            {
                "host": "host",
                "port": 9,
                "db": 1,
                "username": "user",
                "password": "pass",
                "ssl_ca_certs": "/ca.pem",
                "ssl_keyfile": "/a b",
            },
            "rediss://host:9/1",
        ),
    ],
)
def test_address_is_read(url: str, options: dict[str, object], shown: str) -> None:
    address = RedisAddress.parse(url)
    assert (address.connection_options(), str(address)) == (options, shown)
    assert address.tls == url.startswith("rediss://")
    assert "pass" not in repr(address)


@pytest.mark.parametrize(
    "url",
    [
        "http://user:s3cret@host",
        "redis://user:s3cret@",
        "redis://user:s3cret@host:port",
        "redis://:s3cret/word@host",
        "redis://:s3cret#word@host",
        "redis://:s3cret?word@host",
        "redis://:s3cret@host/first",
        "redis://:s3cret@host/-1",
        "redis://:s3cret@host/2147483648",
        "redis://:s3cret@host:99999",
        "redis://:s3cret@[::1",
        "redis://:s3cret@host?ssl_ca_certs=/ca.pem",
        "rediss://:s3cret@host?decode_responses=true",
        "redis://s3cret..:6379",
        "redis://:s3cret@a..b",
        "unix:///s3cret",
        "",
    ],
)
def test_address_that_cannot_be_read_is_not_repeated(url: str) -> None:
    with pytest.raises(StoreError, match=r"DIP_STORE: .*allowed") as raised:
        RedisAddress.parse(url)
    assert "s3cret" not in str(raised.value)
    assert raised.value.__suppress_context__ or raised.value.__context__ is None


def test_password_is_hidden_in_what_others_say() -> None:
    address = RedisAddress.parse("redis://:s3cret@host")
    assert address.hide("unknown command AUTH with args: 's3cret'") == "unknown command AUTH with args: '***'"
    assert RedisAddress.parse("redis://host").hide("text") == "text"
