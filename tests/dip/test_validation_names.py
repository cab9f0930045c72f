"""Shows what a job may be called, that every request says so, and that it costs nothing to say no."""

from __future__ import annotations

import pytest
from dip.errors import InvalidRequestError
from dip.planner.v1 import planner_pb2 as pb
from dip.validation import JOB_ID_RULE, is_job_id, validate_names, validate_register_job
from google.protobuf import message_factory
from hostile_names import HOSTILE_NAMES, USUAL_NAMES
from hypothesis import given
from hypothesis import strategies as st

SERVICE = pb.DESCRIPTOR.services_by_name["PlannerService"]
REQUESTS = [message_factory.GetMessageClass(method.input_type) for method in SERVICE.methods]
NAMING = [request for request in REQUESTS if "job_id" in request.DESCRIPTOR.fields_by_name]
ALLOWED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-:@+=")


@pytest.mark.parametrize("name", USUAL_NAMES)
def test_usual_names_are_allowed(name: str) -> None:
    assert is_job_id(name)
    for request in NAMING:
        validate_names(request(job_id=name))


@pytest.mark.parametrize("request_type", NAMING)
@pytest.mark.parametrize("name", HOSTILE_NAMES.values(), ids=HOSTILE_NAMES)
def test_every_request_that_names_a_job_names_the_field_and_what_is_allowed(request_type: type, name: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        validate_names(request_type(job_id=name))
    (violation,) = caught.value.violations
    assert violation.field == "job_id"
    assert violation.description.endswith(JOB_ID_RULE)
    assert len(violation.description) < 1_000
    assert violation.description.isprintable()


def test_requests_that_name_no_job_have_no_name_to_check() -> None:
    assert {request.DESCRIPTOR.name for request in REQUESTS if request not in NAMING} == {
        "PlanRequest",
        "ListJobsRequest",
    }
    validate_names(pb.PlanRequest())


def test_registration_is_checked_by_itself_too() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        validate_register_job(pb.RegisterJobRequest(job_id="../x"))
    assert caught.value.violations[0].field == "job_id"


@given(st.text(max_size=40))
def test_no_other_character_is_ever_allowed(name: str) -> None:
    if is_job_id(name):
        assert set(name) <= ALLOWED
        assert name[0].isalnum()
        assert ".." not in name
