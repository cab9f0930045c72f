"""Calls to a planner, or to several of one store: typed errors, deadlines, proxies, big messages, outages, the end."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import cases
import grpc
import pytest
from dip.planner.v1 import planner_pb2 as pb
from fake_planner import FakePlanner, FakeStore, eventually

from trainer_agent.backoff import Backoff
from trainer_agent.client import PlannerCallError, PlannerClient
from trainer_agent.connections import Connections
from trainer_agent.endpoint import Endpoints

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

REGISTRATION = pb.RegisterJobRequest(job_id="job", attempt=7, spec=cases.job())
JOB = pb.GetJobRequest(job_id="job")
STREAM = pb.StreamSchedulesRequest(job_id="job", attempt=7)
# Nothing can listen on port 1 of the loopback without privileges, and refusal comes at once.
NOBODY = Endpoints.parse("127.0.0.1:1")


@pytest.fixture
def planner() -> Iterator[FakePlanner]:
    planner = FakePlanner()
    yield planner
    planner.stop()


@pytest.fixture
def client(planner: FakePlanner) -> Iterator[PlannerClient]:
    client = PlannerClient(Endpoints.parse(planner.listen()))
    yield client
    client.close()


def submission(iteration: int = 0) -> pb.SubmitBatchRequest:
    batch = cases.batch(cases.documents(2))
    return pb.SubmitBatchRequest(job_id="job", attempt=7, iteration=iteration, batch=batch)


def test_the_calls_reach_the_planner(planner: FakePlanner, client: PlannerClient) -> None:
    answer = client.register_job(REGISTRATION)
    client.submit_batch(submission())
    client.report_execution(pb.ReportExecutionRequest(job_id="job", attempt=7))
    assert client.get_job(JOB).partition == answer.partition
    assert planner.requests["RegisterJob"] == [REGISTRATION]
    assert planner.requests["SubmitBatch"] == [submission()]


def test_a_stream_yields_answers_until_it_breaks(planner: FakePlanner, client: PlannerClient) -> None:
    client.register_job(REGISTRATION)
    client.submit_batch(submission())
    stream = iter(client.stream_schedules(STREAM))
    assert next(stream).iteration == 0
    planner.break_streams(grpc.StatusCode.UNAVAILABLE, "draining")
    with pytest.raises(PlannerCallError, match=r"StreamSchedules at planner 127\.0\.0\.1:\d+: UNAVAILABLE: draining"):
        next(stream)


def test_a_stream_that_ends_well_just_ends(planner: FakePlanner, client: PlannerClient) -> None:
    client.register_job(REGISTRATION)
    stream = client.stream_schedules(STREAM)
    planner.wait_for_calls("StreamSchedules", 1)
    planner.break_streams()
    assert list(stream) == []


@pytest.mark.parametrize(
    ("code", "outage", "retryable"),
    [
        (grpc.StatusCode.UNAVAILABLE, True, True),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, True, True),
        (grpc.StatusCode.DEADLINE_EXCEEDED, True, True),
        (grpc.StatusCode.INTERNAL, True, False),
        (grpc.StatusCode.UNKNOWN, True, False),
        (grpc.StatusCode.INVALID_ARGUMENT, False, False),
        (grpc.StatusCode.NOT_FOUND, False, False),
        (grpc.StatusCode.FAILED_PRECONDITION, False, False),
        (grpc.StatusCode.PERMISSION_DENIED, False, False),
    ],
)
def test_errors_say_whether_the_planner_is_away_or_refuses(
    planner: FakePlanner, client: PlannerClient, code: grpc.StatusCode, outage: bool, retryable: bool
) -> None:
    planner.fail_at("RegisterJob", 1, code, "no")
    with pytest.raises(PlannerCallError) as caught:
        client.register_job(REGISTRATION)
    error = caught.value
    assert (error.rpc, error.code, error.details) == ("RegisterJob", code, "no")
    assert (error.outage, error.retryable, error.retry_after_s) == (outage, retryable, 0.0)


def test_the_delay_that_the_planner_asks_for_is_read(planner: FakePlanner, client: PlannerClient) -> None:
    planner.fail_at("SubmitBatch", 1, grpc.StatusCode.RESOURCE_EXHAUSTED, "queue full", retry_after_s=1.5)
    with pytest.raises(PlannerCallError, match="queue full") as caught:
        client.submit_batch(submission())
    assert caught.value.retry_after_s == pytest.approx(1.5)


def test_a_planner_that_never_answers_is_given_up(planner: FakePlanner, client: PlannerClient) -> None:
    client.register_job(REGISTRATION)
    planner.hang()
    with pytest.raises(PlannerCallError) as caught:
        client.submit_batch(submission(), timeout_s=0.2)
    assert caught.value.code == grpc.StatusCode.DEADLINE_EXCEEDED
    assert caught.value.outage


def test_nobody_at_the_endpoint_is_an_outage() -> None:
    client = PlannerClient(NOBODY)
    with pytest.raises(PlannerCallError, match=r"127\.0\.0\.1:1: UNAVAILABLE") as caught:
        client.register_job(REGISTRATION)
    assert caught.value.retryable
    client.close()


def test_waiting_for_a_planner_ends_either_way(planner: FakePlanner, client: PlannerClient) -> None:
    assert client.wait_until_reachable(JOB, 10.0)
    nobody = PlannerClient(NOBODY)
    assert not nobody.wait_until_reachable(JOB, 0.1)
    nobody.close()


def test_a_planner_that_comes_later_is_found_on_the_same_channel(tmp_path: Path) -> None:
    address = f"unix://{tmp_path}/planner.sock"
    client, planner = PlannerClient(Endpoints.parse(address)), FakePlanner()
    assert not client.wait_until_reachable(JOB, 0.1)
    planner.listen(address)
    assert client.wait_until_reachable(JOB, 10.0)
    client.register_job(REGISTRATION)
    client.close()
    planner.stop()


def test_proxies_are_not_asked_about_this_machine(planner: FakePlanner, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "")
    client = PlannerClient(Endpoints.parse(planner.listen()))
    client.register_job(REGISTRATION)
    client.close()


def test_messages_above_grpcs_usual_limit_come_through(planner: FakePlanner, client: PlannerClient) -> None:
    client.register_job(REGISTRATION)
    big = pb.StreamSchedulesResponse(iteration=3, unplanned_reason="x" * (6 * 1024 * 1024))
    planner.answer(0, big)
    assert next(iter(client.stream_schedules(STREAM))) == big


def test_closing_ends_what_is_under_way(planner: FakePlanner, client: PlannerClient) -> None:
    client.register_job(REGISTRATION)
    ends: list[grpc.StatusCode] = []

    def follow() -> None:
        with pytest.raises(PlannerCallError) as caught:
            list(client.stream_schedules(STREAM))
        ends.append(caught.value.code)

    thread = threading.Thread(target=follow)
    thread.start()
    planner.wait_for_calls("StreamSchedules", 1)
    client.close()
    thread.join(10.0)
    assert ends == [grpc.StatusCode.CANCELLED]


def test_calls_after_the_end_fail_as_calls_do() -> None:
    client = PlannerClient(NOBODY)
    client.close()
    client.close()
    with pytest.raises(PlannerCallError, match="the client is closed"):
        client.register_job(REGISTRATION)
    with pytest.raises(PlannerCallError, match="the client is closed"):
        client.stream_schedules(STREAM)


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


class Clock:
    """Seconds that go forward when a test says so."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


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
    assert client.wait_until_reachable(JOB, 20.0)
    assert client.endpoint == client.endpoints.each[1]
    client.register_job(REGISTRATION)
    client.close()


def test_at_the_start_the_preferred_one_goes_before_others(
    two: tuple[FakePlanner, FakePlanner], between: PlannerClient
) -> None:
    two[0].fail_at("GetJob", 1, grpc.StatusCode.UNAVAILABLE)  # it is there: what it says is for the next call to hear
    assert between.wait_until_reachable(JOB, 20.0)
    assert between.endpoint == between.endpoints.each[0]


def test_planners_that_are_there_and_answer_nothing_in_time_may_be_busy(
    two: tuple[FakePlanner, FakePlanner], between: PlannerClient
) -> None:
    for planner in two:
        planner.hang()
    assert between.wait_until_reachable(JOB, 0.5)
    assert between.endpoint == between.endpoints.each[0]


def test_closing_closes_all_of_them(two: tuple[FakePlanner, FakePlanner], between: PlannerClient) -> None:
    assert between.wait_until_reachable(JOB, 20.0)
    between.register_job(REGISTRATION)
    between.close()
    between.close()
    between.leave(between.endpoint, "too late")
    between.look_for_preferred(JOB)
    assert not between.wait_until_reachable(JOB, 20.0)
    with pytest.raises(PlannerCallError, match="the client is closed"):
        between.register_job(REGISTRATION)
