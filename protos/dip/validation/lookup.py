"""Validation of the request for one plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dip.validation.keys import check_iteration, check_replica
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
