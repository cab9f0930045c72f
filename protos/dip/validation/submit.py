"""Validation of the submission of a batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dip.validation.batch import check_batch
from dip.validation.keys import check_attempt, check_iteration, check_replica
from dip.validation.magnitude import check_magnitudes
from dip.validation.violations import Violations

if TYPE_CHECKING:
    from dip.planner.v1 import planner_pb2 as pb


def validate_submit_batch(request: pb.SubmitBatchRequest, spec: pb.JobSpec) -> None:
    """Check a submitted batch against the job that it names.

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
    check_iteration("iteration", request.iteration, violations)
    check_batch(spec, request.batch, "batch", violations)
    violations.raise_if_any()
    check_magnitudes(spec, request.batch, "batch", violations)
    violations.raise_if_any()
