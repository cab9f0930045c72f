"""What a Redis says of itself, and whether the planner can use it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from planner_service.store.records import StoreAwayError

_LEAST_MAJOR_VERSION: Final = 7


class UnusableRedisError(StoreAwayError):
    """The Redis refuses this planner, or lacks what it needs, until somebody changes a setting."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RedisFacts:
    """The answer to INFO, as far as it matters.

    Parameters
    ----------
    run_id
        Unlike that of any other start of any server.
    version
        Of Redis, or the one that a Valkey is compatible with.
    """

    run_id: str
    version: str
    is_cluster: bool
    is_replica: bool
    is_loading: bool
    maxmemory_policy: str

    @classmethod
    def parse(cls, info: bytes) -> RedisFacts:
        """Read the answer to INFO."""
        lines = (line.partition(":") for line in info.decode(errors="replace").splitlines())
        said = {name: value.strip() for name, colon, value in lines if colon}
        return cls(
            run_id=said.get("run_id", ""),
            version=said.get("redis_version", ""),
            is_cluster=said.get("redis_mode") == "cluster" or said.get("cluster_enabled") == "1",
            is_replica=said.get("role") in ("slave", "replica"),
            is_loading=said.get("loading") == "1",
            maxmemory_policy=said.get("maxmemory_policy", ""),
        )

    def check(self, address: str) -> None:
        """Raise where the planner cannot use this Redis.

        Raises
        ------
        UnusableRedisError
            It never can.
        StoreAwayError
            It cannot now.
        """
        major = self.version.split(".")[0]
        if major.isdigit() and int(major) < _LEAST_MAJOR_VERSION:
            raise UnusableRedisError(
                f"{address} is Redis {self.version}; DIP_STORE needs Redis 7.0 or Valkey 7.2, or a later one"
            )
        if self.is_cluster:
            raise UnusableRedisError(f"{address} is a Redis Cluster; DIP_STORE needs a Redis that is not one")
        if self.is_replica:
            raise StoreAwayError(f"{address} is a replica now; writes need the primary")
        if self.is_loading:
            raise StoreAwayError(f"{address} is loading its data")

    @property
    def advice(self) -> str:
        """What its settings endanger; empty where they do not."""
        if self.maxmemory_policy in ("", "noeviction"):
            return ""
        return f"may delete plans that ranks wait for: its maxmemory-policy is {self.maxmemory_policy}, not noeviction"
