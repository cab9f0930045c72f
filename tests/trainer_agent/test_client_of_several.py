"""Calls to planners of one store: who is spoken to at the start, left for another in an outage, and returned to."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import cases
import grpc
import pytest
from clocks import Clock
from dip.connecting import Endpoints
from dip.planner.v1 import planner_pb2 as pb
from fake_planner import FakePlanner, FakeStore, eventually
from waiting import PATIENCE_S

import trainer_agent.client
from trainer_agent.backoff import Backoff
from trainer_agent.call_error import PlannerCallError
from trainer_agent.client import PlannerClient
from trainer_agent.connections import Connections

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REGISTRATION = pb.RegisterJobRequest(job_id="job", attempt=7, spec=cases.job())
JOB = pb.GetJobRequest(job_id="job")
STREAM = pb.StreamSchedulesRequest(job_id="job", attempt=7)


def submission() -> pb.SubmitBatchRequest:
    return pb.SubmitBatchRequest(job_id="job", attempt=7, batch=cases.batch(cases.documents(2)))


@pytest.fixture
def two() -> Iterator[tuple[FakePlanner, FakePlanner]]:
    store = FakeStore()
    planners = FakePlanner(store=store), FakePlanner(store=store)
    yield planners
    for planner in planners:
        planner.stop()


@pytest.fixture
def between(two: tuple[FakePlanner, FakePlanner]) -> Iterator[PlannerClient]:
    client = client_of(*two)
    yield client
    client.close()


def client_of(*planners: FakePlanner, clock: Callable[[], float] = time.monotonic) -> PlannerClient:
    endpoints = Endpoints.parse(",".join(planner.listen() for planner in planners))
    returning = Backoff(initial_s=60.0, maximum_s=60.0)
    return PlannerClient(endpoints, connections=Connections(endpoints, returning=returning, clock=clock))


MOVES_ON = [
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
]


@pytest.mark.parametrize("code", MOVES_ON)
def test_an_outage_moves_on_to_the_next_planner(
    two: tuple[FakePlanner, FakePlanner], between: PlannerClient, code: grpc.StatusCode
) -> None:
    between.register_job(REGISTRATION)
    two[0].fail_at("SubmitBatch", 1, code)
    with pytest.raises(PlannerCallError) as caught:
        between.submit_batch(submission())
    first, second = between.endpoints
    assert (caught.value.endpoint, between.endpoint) == (str(first), second)
    between.submit_batch(submission())  # it knows the job: they share a store
    assert two[1].submitted == [0]


def test_a_denial_stands_until_another_planner_is_spoken_to(
    two: tuple[FakePlanner, FakePlanner], between: PlannerClient
) -> None:
    """A thread that hears of it later than the one that left the planner asks the next one too."""
    two[0].fail_at("GetJob", 1, grpc.StatusCode.UNAUTHENTICATED)
    with pytest.raises(PlannerCallError) as caught:
        between.get_job(JOB)
    assert caught.value.denied
    assert not between.would_ask_otherwise()
    between.leave(between.endpoint, "it denied another thread, too")
    assert between.would_ask_otherwise()


@pytest.mark.parametrize(
    "code",
    [
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.ALREADY_EXISTS,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.PERMISSION_DENIED,
    ],
)
def test_what_the_others_would_answer_alike_moves_nothing(
    two: tuple[FakePlanner, FakePlanner], between: PlannerClient, code: grpc.StatusCode
) -> None:
    between.register_job(REGISTRATION)
    two[0].fail_at("SubmitBatch", 1, code, retry_after_s=0.1)
    with pytest.raises(PlannerCallError):
        between.submit_batch(submission())
    assert between.endpoint == between.endpoints.each[0]


def test_a_call_that_fails_ends_the_stream_at_the_same_planner(
    two: tuple[FakePlanner, FakePlanner], between: PlannerClient
) -> None:
    between.register_job(REGISTRATION)
    stream = between.stream_schedules(STREAM)
    two[0].wait_for_calls("StreamSchedules", 1)
    two[0].fail_at("SubmitBatch", 1, grpc.StatusCode.UNAVAILABLE, "draining")
    with pytest.raises(PlannerCallError):
        between.submit_batch(submission())
    with pytest.raises(PlannerCallError, match=r"CANCELLED: left for another planner: SubmitBatch .*: draining"):
        list(stream)
    assert between.endpoint == between.endpoints.each[1]  # and not on to the first again
    between.submit_batch(submission())
    assert next(iter(between.stream_schedules(STREAM))).iteration == 0


def test_a_planner_that_hangs_can_be_left(two: tuple[FakePlanner, FakePlanner], between: PlannerClient) -> None:
    two[0].hang()
    stream = between.stream_schedules(STREAM)
    two[0].wait_for_calls("StreamSchedules", 1)
    between.leave(stream.endpoint, "it says nothing")
    with pytest.raises(PlannerCallError, match=r"CANCELLED: left for another planner: it says nothing$"):
        list(stream)
    assert between.endpoint == between.endpoints.each[1]
    between.leave(stream.endpoint, "again")
    assert between.endpoint == between.endpoints.each[1]


def test_the_preferred_planner_is_returned_to_once_it_answers(two: tuple[FakePlanner, FakePlanner]) -> None:
    clock = Clock()
    client = client_of(*two, clock=clock)
    client.register_job(REGISTRATION)
    client.look_for_preferred(JOB)
    client.leave(client.endpoint, "away")
    stream = iter(client.stream_schedules(STREAM))
    client.look_for_preferred(JOB)
    assert two[0].calls["GetJob"] == 0  # too soon
    clock.now_s += 60.0
    client.look_for_preferred(JOB)
    eventually(lambda: client.endpoint == client.endpoints.each[0])
    assert two[0].calls["GetJob"] == 1
    client.submit_batch(submission())
    assert two[0].submitted == [0]
    assert next(stream).iteration == 0  # at the other planner, where it goes on
    client.close()


def test_a_preferred_planner_that_knows_no_such_job_is_back_too(two: tuple[FakePlanner, FakePlanner]) -> None:
    clock = Clock()
    client = client_of(*two, clock=clock)
    two[0].fail_at("GetJob", 1, grpc.StatusCode.UNAVAILABLE)
    with pytest.raises(PlannerCallError, match="UNAVAILABLE"):
        client.get_job(JOB)
    with pytest.raises(PlannerCallError, match="NOT_FOUND"):
        client.get_job(JOB)
    assert client.endpoint == client.endpoints.each[1]
    clock.now_s += 60.0
    client.look_for_preferred(JOB)
    eventually(lambda: client.endpoint == client.endpoints.each[0])
    client.close()


def test_a_preferred_planner_that_is_still_away_is_asked_later(two: tuple[FakePlanner, FakePlanner]) -> None:
    clock = Clock()
    client = client_of(*two, clock=clock)
    for call in (1, 2):
        two[0].fail_at("GetJob", call, grpc.StatusCode.UNAVAILABLE)
    with pytest.raises(PlannerCallError):
        client.get_job(JOB)
    clock.now_s += 60.0
    client.look_for_preferred(JOB)
    two[0].wait_for_calls("GetJob", 2)
    eventually(lambda: not client._connections._asking)
    assert client.endpoint == client.endpoints.each[1]
    client.look_for_preferred(JOB)
    assert two[0].calls["GetJob"] == 2
    clock.now_s += 60.0
    client.look_for_preferred(JOB)
    eventually(lambda: client.endpoint == client.endpoints.each[0])
    client.close()


def test_a_preferred_planner_that_says_no_while_it_has_its_turn_again_is_not_hung_up_on(
    two: tuple[FakePlanner, FakePlanner],
) -> None:
    clock = Clock()
    client = client_of(*two, clock=clock)
    client.register_job(REGISTRATION)
    client.leave(client.endpoint, "away")
    clock.now_s += 60.0
    two[0].hang("GetJob")
    two[0].fail_at("GetJob", 1, grpc.StatusCode.UNAVAILABLE)
    client.look_for_preferred(JOB)
    two[0].wait_for_calls("GetJob", 1)
    two[1].fail_at("SubmitBatch", 1, grpc.StatusCode.UNAVAILABLE)
    with pytest.raises(PlannerCallError):
        client.submit_batch(submission())
    stream = iter(client.stream_schedules(STREAM))
    two[0].wait_for_calls("StreamSchedules", 1)
    two[0].go_on()
    eventually(lambda: not client._connections._asking)
    client.submit_batch(submission())
    assert next(stream).iteration == 0
    client.close()


@pytest.mark.parametrize("fault", ["away", "hanging"])
def test_at_the_start_the_planner_that_answers_is_spoken_to(two: tuple[FakePlanner, FakePlanner], fault: str) -> None:
    client = client_of(*two)
    if fault == "away":
        two[0].stop()
    else:
        two[0].hang()
    assert client.wait_until_reachable(JOB, PATIENCE_S)
    assert client.endpoint == client.endpoints.each[1]
    client.register_job(REGISTRATION)
    client.close()


def test_at_the_start_the_preferred_one_goes_before_others(
    two: tuple[FakePlanner, FakePlanner], between: PlannerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer_agent.client, "HEAD_START_S", PATIENCE_S)  # however busy this machine is
    two[0].fail_at("GetJob", 1, grpc.StatusCode.UNAVAILABLE)  # it is there: what it says is for the next call to hear
    assert between.wait_until_reachable(JOB, PATIENCE_S)
    assert between.endpoint == between.endpoints.each[0]


def test_planners_that_are_there_and_answer_nothing_in_time_may_be_busy(
    two: tuple[FakePlanner, FakePlanner], between: PlannerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer_agent.client, "CONNECTED_S", PATIENCE_S)  # however busy this machine is
    for planner in two:
        planner.hang()
    assert between.wait_until_reachable(JOB, 2.0)
    assert between.endpoint == between.endpoints.each[0]


def test_closing_closes_all_of_them(two: tuple[FakePlanner, FakePlanner], between: PlannerClient) -> None:
    assert between.wait_until_reachable(JOB, PATIENCE_S)
    between.register_job(REGISTRATION)
    between.close()
    between.close()
    between.leave(between.endpoint, "too late")
    between.look_for_preferred(JOB)
    assert not between.wait_until_reachable(JOB, PATIENCE_S)
    with pytest.raises(PlannerCallError, match="the client is closed"):
        between.register_job(REGISTRATION)
