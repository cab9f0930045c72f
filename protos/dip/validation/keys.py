"""Validation of what names a job, its attempt, and a rank of it in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from dip.validation.limits import MAX_INT64
from dip.validation.names import check_job_id

if TYPE_CHECKING:
    from dip.planner.v1 import planner_pb2 as pb
    from dip.validation.violations import Violations


class AttemptKey(Protocol):
    """A request that names an attempt of a job."""

    job_id: str
    attempt: int


def check_attempt(request: AttemptKey, violations: Violations) -> None:
    """Check the job's identifier and the attempt."""
    check_job_id(request.job_id, violations)
    violations.in_range("attempt", request.attempt, 0, MAX_INT64)


def check_replica(replica: int, spec: pb.JobSpec, violations: Violations) -> None:
    """Check that the job has the replica."""
    violations.in_range("replica", replica, 0, max(1, spec.cluster.replicas) - 1)


def check_rank(rank: int, spec: pb.JobSpec, violations: Violations) -> None:
    """Check that a replica of the job has the rank."""
    violations.in_range("rank", rank, 0, spec.cluster.ranks - 1)


def check_iteration(field: str, iteration: int, violations: Violations) -> None:
    """Check that an iteration is none before the first."""
    violations.in_range(field, iteration, 0, MAX_INT64)
