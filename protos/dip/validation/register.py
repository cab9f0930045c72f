"""Validation of the registration of an attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dip.validation.batch import check_batch
from dip.validation.job import check_job_spec
from dip.validation.keys import check_attempt
from dip.validation.magnitude import check_magnitudes
from dip.validation.partition import check_partition
from dip.validation.violations import Violations

if TYPE_CHECKING:
    from dip.planner.v1 import planner_pb2 as pb


def validate_register_job(request: pb.RegisterJobRequest) -> None:
    """Check a registration; a representative batch and a loaded partition are checked where there is one.

    Raises
    ------
    InvalidRequestError
        With every violation.
    """
    violations = Violations()
    check_attempt(request, violations)
    check_job_spec(request.spec, "spec", violations)
    has_batch = bool(request.representative_batch.microbatches)
    if has_batch:
        check_batch(request.spec, request.representative_batch, "representative_batch", violations)
    if request.partition.chunks:
        check_partition(request.spec, request.partition, "partition", violations)
    violations.raise_if_any()
    if has_batch:
        check_magnitudes(request.spec, request.representative_batch, "representative_batch", violations)
        violations.raise_if_any()
