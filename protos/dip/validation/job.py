"""Validation of a job: the model, the cluster, and what is asked of the planner."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dip.validation.cluster import check_cluster
from dip.validation.model import check_model
from dip.validation.options import check_options
from dip.validation.violations import Violations

if TYPE_CHECKING:
    from dip.planner.v1 import planner_pb2 as pb


def validate_job_spec(spec: pb.JobSpec, path: str = "job") -> None:
    """Check every field of a job, and what its fields say about each other.

    Parameters
    ----------
    spec
        The job.
    path
        Where the job stands in its request.

    Raises
    ------
    InvalidRequestError
        With every violation.
    """
    violations = Violations()
    check_job_spec(spec, path, violations)
    violations.raise_if_any()


def check_job_spec(spec: pb.JobSpec, path: str, violations: Violations) -> None:
    """Collect a job's violations."""
    check_model(spec.model, f"{path}.model", violations)
    check_cluster(spec.cluster, f"{path}.cluster", violations)
    check_options(spec, f"{path}.options", violations)
