"""Validation of names that end up in keys, log lines and labels: what a job may be called.

A job's name is part of keys of a store, of log lines and of patterns in an access file. What could mean something there
is no part of any name: no space, line break or control character, no wildcard (``* ? [ ] { }``), no slash, no ``..``.
Nor is anything beyond ASCII, so that no two names look the same.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from dip.validation.limits import MAX_JOB_ID_LENGTH
from dip.validation.violations import Violations

if TYPE_CHECKING:
    from google.protobuf.message import Message

JOB_ID: Final = "job_id"
"""The field of every request that names a job."""

JOB_ID_RULE: Final = f"1 to {MAX_JOB_ID_LENGTH} of a-z A-Z 0-9 . _ - : @ + =, first a letter or digit, without '..'"
"""What a job may be called, as errors say it."""

_JOB_ID = re.compile(r"(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9._\-:@+=]*")


def is_job_id(name: str) -> bool:
    """Whether a job may be called so."""
    return len(name) <= MAX_JOB_ID_LENGTH and _JOB_ID.fullmatch(name) is not None


def check_job_id(job_id: str, violations: Violations) -> None:
    """Check the name of a job."""
    if not job_id:
        violations.missing(JOB_ID, JOB_ID_RULE)
    elif not is_job_id(job_id):
        violations.add(JOB_ID, job_id, JOB_ID_RULE)


def validate_names(request: Message) -> None:
    """Check the job's name in a request of any method, before anything is done with it.

    Raises
    ------
    InvalidRequestError
        The request names a job as none may be called.
    """
    if JOB_ID in request.DESCRIPTOR.fields_by_name:
        violations = Violations()
        check_job_id(getattr(request, JOB_ID), violations)
        violations.raise_if_any()
