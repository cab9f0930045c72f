"""Validation of a request for one plan at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dip.validation.batch import check_batch
from dip.validation.job import check_job_spec
from dip.validation.magnitude import check_magnitudes
from dip.validation.partition import check_partition
from dip.validation.violations import Violations

if TYPE_CHECKING:
    from dip.planner.v1 import planner_pb2 as pb


def validate_plan_request(request: pb.PlanRequest) -> None:
    """Check a job, its batch, and the partition to keep where there is one.

    Raises
    ------
    InvalidRequestError
        With every violation.
    """
    violations = Violations()
    check_job_spec(request.job, "job", violations)
    check_batch(request.job, request.batch, "batch", violations)
    if request.partition.chunks:
        check_partition(request.job, request.partition, "partition", violations)
    violations.raise_if_any()
    check_magnitudes(request.job, request.batch, "batch", violations)
    violations.raise_if_any()
