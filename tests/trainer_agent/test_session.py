"""One attempt at its planner: registered once, ended once, errors of background threads raised in the training loop."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, cast

import cases
import grpc
import pytest
from dip.partition import default_partition
from dip.planner.v1 import planner_pb2 as pb
from waiting import PATIENCE_S

from trainer_agent.call_error import PlannerCallError
from trainer_agent.session import PlannerSession, SessionThread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainer_agent.client import PlannerClient

SPEC = cases.job(ranks=2)
REGISTRATION = pb.RegisterJobRequest(job_id="job", attempt=7, spec=SPEC, partition=default_partition(SPEC))


class ScriptedClient:
    """Answers registrations as told, one after another."""

    endpoint = "planner:1"

    def __init__(self, answers: Sequence[pb.Partition | grpc.StatusCode]) -> None:
        self.answers = list(answers)

    def would_ask_otherwise(self) -> bool:
        return False

    def register_job(self, request: pb.RegisterJobRequest) -> pb.RegisterJobResponse:
        assert request == REGISTRATION
        answer = self.answers.pop(0)
        if isinstance(answer, grpc.StatusCode):
            raise PlannerCallError(rpc="RegisterJob", endpoint=self.endpoint, code=answer, details="scripted")
        return pb.RegisterJobResponse(partition=answer)


class Case:
    """A session and what it said when it was over."""

    def __init__(self, *answers: pb.Partition | grpc.StatusCode, registered: bool = False) -> None:
        self.client = ScriptedClient(answers)
        self.over: list[str] = []
        self.session = PlannerSession(
            cast("PlannerClient", self.client),
            REGISTRATION,
            replica=0,
            rank=0,
            registered=registered,
            on_over=self.over.append,
        )


def test_it_registers_once_and_again_when_it_was_forgotten() -> None:
    case = Case(REGISTRATION.partition, REGISTRATION.partition)
    for _ in range(3):
        case.session.ensure_registered()
    assert len(case.client.answers) == 1
    case.session.forgotten()
    case.session.ensure_registered()
    assert case.client.answers == []
    assert not case.session.over


def test_what_is_registered_is_not_registered() -> None:
    Case(registered=True).session.ensure_registered()


def test_an_outage_is_the_callers_to_wait_out() -> None:
    case = Case(grpc.StatusCode.UNAVAILABLE, REGISTRATION.partition)
    with pytest.raises(PlannerCallError):
        case.session.ensure_registered()
    case.session.ensure_registered()
    assert not case.session.over


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED])
def test_being_turned_away_is_the_callers_to_wait_out(code: grpc.StatusCode) -> None:
    case = Case(code, REGISTRATION.partition)
    with pytest.raises(PlannerCallError):
        case.session.ensure_registered()
    case.session.ensure_registered()
    assert not case.session.over


@pytest.mark.parametrize("code", [grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNIMPLEMENTED])
def test_a_refusal_ends_it_and_stops_nothing(code: grpc.StatusCode, caplog: pytest.LogCaptureFixture) -> None:
    case = Case(code)
    with caplog.at_level(logging.WARNING):
        case.session.ensure_registered()
    assert case.session.over
    assert code.name in case.over[0]
    assert "training goes on" in caplog.text
    case.session.raise_failure()


@pytest.mark.parametrize("code", [grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.ALREADY_EXISTS])
def test_a_programming_error_is_raised_once_in_the_training_loop(code: grpc.StatusCode) -> None:
    case = Case(code)
    case.session.ensure_registered()
    assert case.session.over
    with pytest.raises(PlannerCallError, match=code.name):
        case.session.raise_failure()
    case.session.raise_failure()


def test_another_partition_ends_it() -> None:
    case = Case(pb.Partition())
    case.session.ensure_registered()
    assert case.over == ["the planner keeps another partition for this attempt than the one that is loaded"]


def test_it_ends_once() -> None:
    case = Case()
    case.session.give_up("closed")
    case.session.fail(ValueError("too late to matter"))
    case.session.end()
    assert case.over == ["closed"]
    case.session.raise_failure()


def test_a_thread_that_breaks_is_heard_of() -> None:
    case = Case()

    def work() -> None:
        raise LookupError("a bug")

    thread = SessionThread("test", case.session, work)
    thread.start()
    thread.join(PATIENCE_S)
    with pytest.raises(LookupError, match="a bug"):
        case.session.raise_failure()
