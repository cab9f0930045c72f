"""Validation of a cluster: ranks, memory, links and speeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dip.validation.limits import (
    MAX_BYTES,
    MAX_INT64,
    MAX_LATENCY_US,
    MAX_RANK_SPEED,
    MAX_RANKS,
    MAX_REPLICAS,
    MIN_RANK_SPEED,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dip.planner.v1 import planner_pb2 as pb
    from dip.validation.violations import Violations


def check_cluster(cluster: pb.Cluster, path: str, violations: Violations) -> None:
    """Check every field; lists by rank hold nothing, one value for all ranks, or one a rank."""
    violations.in_range(f"{path}.ranks", cluster.ranks, 1, MAX_RANKS)
    violations.in_range(f"{path}.replicas", cluster.replicas, 0, MAX_REPLICAS)
    _check_by_rank(cluster.memory_bytes, 0, MAX_INT64, cluster.ranks, f"{path}.memory_bytes", violations)
    violations.in_range(f"{path}.link_latency_us", cluster.link_latency_us, 0, MAX_LATENCY_US)
    violations.in_range(f"{path}.link_bytes_per_us", cluster.link_bytes_per_us, 0, MAX_BYTES)
    _check_by_rank(cluster.rank_speed, MIN_RANK_SPEED, MAX_RANK_SPEED, cluster.ranks, f"{path}.rank_speed", violations)


def _check_by_rank(
    values: Sequence[float], low: float, high: float, ranks: int, path: str, violations: Violations
) -> None:
    if len(values) not in (0, 1, ranks):
        violations.add(path, f"{len(values)} values", f"none, one for all ranks, or one for each of the {ranks} ranks")
        return
    for rank, value in enumerate(values):
        violations.in_range(f"{path}[{rank}]", value, low, high)
