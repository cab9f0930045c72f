"""Validation of the request for a stream of schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dip.validation.keys import check_attempt, check_iteration, check_rank, check_replica
from dip.validation.violations import Violations

if TYPE_CHECKING:
    from dip.planner.v1 import planner_pb2 as pb


def validate_stream_schedules(request: pb.StreamSchedulesRequest, spec: pb.JobSpec) -> None:
    """Check a request for schedules against the job that it names.

    Parameters
    ----------
    request
        The request.
    spec
        What the job was registered as; valid.

    Raises
    ------
    InvalidRequestError
        With every violation.
    """
    violations = Violations()
    check_attempt(request, violations)
    check_replica(request.replica, spec, violations)
    check_rank(request.rank, spec, violations)
    check_iteration("first_iteration", request.first_iteration, violations)
    violations.raise_if_any()
