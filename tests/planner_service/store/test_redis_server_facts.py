"""Shows which Redis a planner takes, from what the server says of itself."""

from __future__ import annotations

import pytest

from planner_service.store import StoreAwayError
from planner_service.store.redis_server_facts import RedisFacts, UnusableRedisError

GOOD = {"redis_version": "7.0.15", "redis_mode": "standalone", "run_id": "abc", "role": "master", "loading": "0"}


def facts(**said: str) -> RedisFacts:
    lines = "".join(f"{name}:{value}\r\n" for name, value in (GOOD | said).items())
    return RedisFacts.parse(b"# Server\r\n" + lines.encode())


@pytest.mark.parametrize("version", ["7.0.0", "7.2.4", "8.1.0", "10.0", "255.255.255", "of our own"])
def test_new_enough_primary_is_taken(version: str) -> None:
    good = facts(redis_version=version)
    good.check("redis://host")
    assert (good.run_id, good.advice) == ("abc", "")


@pytest.mark.parametrize(
    ("said", "kind", "reason"),
    [
        ({"redis_version": "6.2.7"}, UnusableRedisError, "is Redis 6.2.7; DIP_STORE needs Redis 7.0 or Valkey 7.2"),
        ({"redis_mode": "cluster"}, UnusableRedisError, "Redis Cluster"),
        ({"cluster_enabled": "1"}, UnusableRedisError, "Redis Cluster"),
        ({"role": "slave"}, StoreAwayError, "replica"),
        ({"loading": "1"}, StoreAwayError, "loading"),
    ],
)
def test_others_are_not(said: dict[str, str], kind: type[StoreAwayError], reason: str) -> None:
    with pytest.raises(kind, match=f"redis://host .*{reason}|redis://host {reason}") as raised:
        facts(**said).check("redis://host")
    assert type(raised.value) is kind


def test_eviction_is_advised_against() -> None:
    assert facts(maxmemory_policy="noeviction").advice == ""
    assert "volatile-ttl" in facts(maxmemory_policy="volatile-ttl").advice
