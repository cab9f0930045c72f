"""Calls to a planner: typed errors, deadlines, proxies, big messages, outages, the end."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NoReturn

import cases
import grpc
import pytest
from dip.connecting import Endpoints
from dip.planner.v1 import planner_pb2 as pb
from fake_planner import FakePlanner
from google.protobuf import any_pb2
from google.rpc import status_pb2
from waiting import PATIENCE_S

from trainer_agent.call_error import LONGEST_RETRY_S, PlannerCallError
from trainer_agent.client import PlannerClient

if TYPE_CHECKING:
    from collections.abc import Iterator
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


def test_no_delay_that_a_planner_asks_for_is_too_long_to_wait(planner: FakePlanner, client: PlannerClient) -> None:
    planner.fail_at("SubmitBatch", 1, grpc.StatusCode.RESOURCE_EXHAUSTED, "wait", retry_after_s=2e11)
    with pytest.raises(PlannerCallError, match="wait") as caught:
        client.submit_batch(submission())
    assert caught.value.retry_after_s == LONGEST_RETRY_S


@pytest.mark.parametrize(
    "told",
    [
        b"\xff\xff",
        status_pb2.Status(
            code=8,
            message="no",
            details=[any_pb2.Any(type_url="type.googleapis.com/google.rpc.RetryInfo", value=b"\xff\xff")],
        ).SerializeToString(),
    ],
)
def test_details_that_cannot_be_read_ask_for_no_delay(
    planner: FakePlanner, client: PlannerClient, monkeypatch: pytest.MonkeyPatch, told: bytes
) -> None:
    def submit(_: object, context: grpc.ServicerContext) -> NoReturn:
        context.set_trailing_metadata((("grpc-status-details-bin", told),))
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "no")

    monkeypatch.setattr(planner, "_enter", lambda _, request, context: submit(request, context))
    with pytest.raises(PlannerCallError, match="no") as caught:
        client.submit_batch(submission())
    assert caught.value.retry_after_s == 0.0


def test_what_a_planner_says_is_one_line_that_steers_no_terminal(planner: FakePlanner, client: PlannerClient) -> None:
    planner.fail_at("SubmitBatch", 1, grpc.StatusCode.NOT_FOUND, "no\njob \x1b[2J" + "x" * 2_000)
    with pytest.raises(PlannerCallError) as caught:
        client.submit_batch(submission())
    assert caught.value.details.startswith(r"no job \x1b[2Jx")
    assert len(str(caught.value)) < 1_200


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
    assert client.wait_until_reachable(JOB, PATIENCE_S)
    nobody = PlannerClient(NOBODY)
    assert not nobody.wait_until_reachable(JOB, 0.1)
    nobody.close()


def test_a_planner_that_comes_later_is_found_on_the_same_channel(tmp_path: Path) -> None:
    address = f"unix://{tmp_path}/planner.sock"
    client, planner = PlannerClient(Endpoints.parse(address)), FakePlanner()
    assert not client.wait_until_reachable(JOB, 0.1)
    planner.listen(address)
    assert client.wait_until_reachable(JOB, PATIENCE_S)
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
    thread.join(PATIENCE_S)
    assert ends == [grpc.StatusCode.CANCELLED]


def test_calls_after_the_end_fail_as_calls_do() -> None:
    client = PlannerClient(NOBODY)
    client.close()
    client.close()
    with pytest.raises(PlannerCallError, match="the client is closed"):
        client.register_job(REGISTRATION)
    with pytest.raises(PlannerCallError, match="the client is closed"):
        client.stream_schedules(STREAM)
