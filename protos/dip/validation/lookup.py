"""Validation of the requests that read a job: one plan of it, or how its iterations went."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dip.validation.keys import check_iteration, check_replica
from dip.validation.limits import MAX_RECENT_ITERATIONS
from dip.validation.violations import Violations

if TYPE_CHECKING:
    from dip.planner.v1 import planner_pb2 as pb


def validate_get_plan(request: pb.GetPlanRequest, spec: pb.JobSpec) -> None:
    """Check which plan is asked for against the job that the request names.

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
    check_replica(request.replica, spec, violations)
    check_iteration("iteration", request.iteration, violations)
    violations.raise_if_any()


def validate_get_job(request: pb.GetJobRequest, spec: pb.JobSpec) -> None:
    """Check of which iterations is asked against the job that the request names.

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
    violations.in_range("recent_iterations", request.recent_iterations, 0, MAX_RECENT_ITERATIONS)
    if request.HasField("replica"):
        check_replica(request.replica, spec, violations)
    if request.HasField("last_iteration"):
        check_iteration("last_iteration", request.last_iteration, violations)
    violations.raise_if_any()
