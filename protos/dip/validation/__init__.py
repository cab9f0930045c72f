"""Validation of requests: every field and every cross-reference, with the field's path in the error."""

from dip.validation.batch import validate_batch
from dip.validation.job import validate_job_spec
from dip.validation.lookup import validate_get_job, validate_get_plan
from dip.validation.names import JOB_ID_RULE, is_job_id, validate_names
from dip.validation.partition import validate_partition
from dip.validation.plan import validate_plan_request
from dip.validation.register import validate_register_job
from dip.validation.report import shown_reason, shown_text, validate_report_execution
from dip.validation.stream import validate_stream_schedules
from dip.validation.submit import validate_submit_batch

__all__ = [
    "JOB_ID_RULE",
    "is_job_id",
    "shown_reason",
    "shown_text",
    "validate_batch",
    "validate_get_job",
    "validate_get_plan",
    "validate_job_spec",
    "validate_names",
    "validate_partition",
    "validate_plan_request",
    "validate_register_job",
    "validate_report_execution",
    "validate_stream_schedules",
    "validate_submit_batch",
]
