"""How a start is decided: with the planner, without it, against a clock that went back, and told to every process."""

from __future__ import annotations

import logging
import time
from itertools import chain, repeat
from typing import TYPE_CHECKING

import cases
import grpc
import pytest
from certificates import Authority
from dip.connecting import ClientFiles, Endpoints
from dip.partition import default_partition
from dip.planner.v1 import planner_pb2 as pb
from fake_planner import FakePlanner, FakeStore
from waiting import PATIENCE_S

import trainer_agent.client
import trainer_agent.startup
from trainer_agent.call_error import PlannerCallError
from trainer_agent.client import PlannerClient
from trainer_agent.settings import AgentSettings
from trainer_agent.startup import FirstRegistration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SPEC = cases.job(ranks=2)
CHOSEN = default_partition(cases.job(ranks=2, segments={"vision": 2, "language": 3}))
REQUEST = pb.RegisterJobRequest(spec=SPEC)
NOW_US = 1_700_000_000_000_000


@pytest.fixture(autouse=True)
def long_head_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the preferred planner be asked first, and say what is wrong, however busy this machine is."""
    monkeypatch.setattr(trainer_agent.client, "HEAD_START_S", PATIENCE_S)
    monkeypatch.setattr(trainer_agent.client, "EXPLAINED_S", PATIENCE_S)


@pytest.fixture
def planner() -> Iterator[FakePlanner]:
    planner = FakePlanner(partition=CHOSEN)
    yield planner
    planner.stop()


@pytest.fixture
def client(planner: FakePlanner) -> Iterator[PlannerClient]:
    client = PlannerClient(Endpoints.parse(planner.listen()))
    yield client
    client.close()


def start_request() -> pb.RegisterJobRequest:
    return pb.RegisterJobRequest(job_id="vlm", attempt=NOW_US, spec=SPEC)


def decide(
    client: PlannerClient | None,
    *,
    request: pb.RegisterJobRequest = REQUEST,
    job_id: str | None = None,
    connect_wait_s: float = PATIENCE_S,
    step_timeout_s: float = 4 * PATIENCE_S,
    clock: Callable[[], float] = time.monotonic,
) -> FirstRegistration:
    settings = AgentSettings(job_id=job_id, connect_wait_s=connect_wait_s)
    return FirstRegistration(
        request, settings, client, step_timeout_s=step_timeout_s, clock_us=lambda: NOW_US, clock=clock
    )


def test_the_planner_chooses_the_partition(planner: FakePlanner, client: PlannerClient) -> None:
    start = decide(client, job_id="vlm")()
    assert start.registered
    assert not start.own_name
    assert start.registration == pb.RegisterJobRequest(job_id="vlm", attempt=NOW_US, spec=SPEC, partition=CHOSEN)


def test_what_is_loaded_already_is_kept(planner: FakePlanner, client: PlannerClient) -> None:
    loaded = default_partition(SPEC)
    assert loaded != CHOSEN
    start = decide(client, request=pb.RegisterJobRequest(spec=SPEC, partition=loaded))()
    assert start.registration.partition == loaded
    alone = decide(None, request=pb.RegisterJobRequest(spec=SPEC, partition=CHOSEN))()
    assert alone.registration.partition == CHOSEN


def test_a_job_without_a_name_gets_one_of_this_start_alone(client: PlannerClient) -> None:
    start = decide(client)()
    assert start.own_name
    assert start.registration.job_id == f"job-{NOW_US}"


def test_without_an_endpoint_the_default_partition_and_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        start = decide(None)()
    assert start.registration.partition == default_partition(SPEC)
    assert not start.registered
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == ["DIP_PLANNER_ENDPOINT is not set"]


def test_the_default_partition_is_made_for_the_representative_batch() -> None:
    batch = cases.batch([[{"vision": [4096], "language": [16]}]])
    start = decide(None, request=pb.RegisterJobRequest(spec=SPEC, representative_batch=batch))()
    assert start.registration.partition == default_partition(SPEC, batch)


def test_nobody_at_the_endpoint_is_waited_for_shortly_and_said(caplog: pytest.LogCaptureFixture) -> None:
    nobody = PlannerClient(Endpoints.parse("127.0.0.1:1"))
    with caplog.at_level(logging.WARNING):
        start = decide(nobody, connect_wait_s=0.1)()
    nobody.close()
    assert not start.registered
    assert start.registration.attempt == NOW_US
    assert start.registration.partition == default_partition(SPEC)
    assert (
        "no planner at 127.0.0.1:1: start one with `dip serve` or unset DIP_PLANNER_ENDPOINT; training goes on with "
        "the fixed fallback schedule"
    ) in caplog.text


def test_a_planner_that_cannot_be_trusted_is_no_reason_not_to_train_and_said_why(
    planner: FakePlanner, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    own = Authority(tmp_path, "own").pair()
    address = planner.listen(credentials=grpc.ssl_server_credentials([(own.key, own.chain)]))
    files = ClientFiles(ca_file=str(Authority(tmp_path, "other").file))
    client = PlannerClient(Endpoints.parse(address), files=files)
    with caplog.at_level(logging.WARNING):
        start = decide(client, connect_wait_s=0.5)()
    client.close()
    assert not start.registered
    (said,) = caplog.records
    assert f"no planner at {address}" in said.getMessage()
    assert ": the planner's certificate comes from no authority in DIP_TLS_CA_FILE (gRPC: " in said.getMessage()
    assert "dip serve" not in said.getMessage()  # it runs
    assert "\n" not in said.getMessage()


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED])
def test_a_planner_that_turns_the_job_away_is_no_reason_not_to_train(
    planner: FakePlanner, client: PlannerClient, code: grpc.StatusCode, caplog: pytest.LogCaptureFixture
) -> None:
    planner.fail_at("RegisterJob", 1, code, "not you")
    start = decide(client, job_id="vlm")()
    assert not start.registered
    assert start.registration.partition == default_partition(SPEC)
    (said,) = caplog.records
    assert f"{code.name}: not you" in said.getMessage()
    assert "training goes on with the fixed fallback schedule" in said.getMessage()


def test_a_planner_that_turns_the_job_away_is_left_for_one_that_does_not(caplog: pytest.LogCaptureFixture) -> None:
    planners = [FakePlanner() for _ in range(2)]
    several = PlannerClient(Endpoints.parse(",".join(one.listen() for one in planners)))
    planners[0].fail_at("RegisterJob", 1, grpc.StatusCode.UNAUTHENTICATED, "not you")
    assert decide(several)().registered
    assert planners[1].calls["RegisterJob"] == 1
    assert f"planner {several.endpoints.each[1]} is asked next" in caplog.text
    several.close()
    for one in planners:
        one.stop()


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL])
def test_a_registration_that_may_or_may_not_count_is_superseded(
    planner: FakePlanner, client: PlannerClient, code: grpc.StatusCode
) -> None:
    planner.fail_at("RegisterJob", 1, code)
    start = decide(client)()
    assert not start.registered
    assert start.registration.attempt == NOW_US + 1
    assert start.registration.partition == default_partition(SPEC)


def test_a_planner_that_never_answers_is_given_up_before_the_other_processes_lose_patience(
    planner: FakePlanner, client: PlannerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer_agent.client, "CONNECTED_S", PATIENCE_S)  # however busy this machine is
    planner.hang()
    start = decide(client, step_timeout_s=4.0)()
    assert start.registration.attempt == NOW_US + 1


def test_the_next_planner_of_the_store_is_told_the_same_attempt(caplog: pytest.LogCaptureFixture) -> None:
    store = FakeStore()
    planners = [FakePlanner(partition=CHOSEN, store=store) for _ in range(2)]
    several = PlannerClient(Endpoints.parse(",".join(one.listen() for one in planners)))
    planners[0].fail_at("RegisterJob", 1, grpc.StatusCode.UNAVAILABLE, "the planner is stopping")
    start = decide(several, job_id="vlm")()
    assert start.registered
    assert start.registration == pb.RegisterJobRequest(job_id="vlm", attempt=NOW_US, spec=SPEC, partition=CHOSEN)
    assert [one.requests["RegisterJob"][0] for one in planners] == [start_request(), start_request()]
    assert caplog.text.count(f"the planner is stopping; planner {several.endpoint} is asked next") == 1
    several.close()
    for one in planners:
        one.stop()


def test_planners_that_all_fail_are_asked_once_each(caplog: pytest.LogCaptureFixture) -> None:
    planners = [FakePlanner() for _ in range(3)]
    several = PlannerClient(Endpoints.parse(",".join(one.listen() for one in planners)))
    for one in planners:
        one.fail_at("RegisterJob", 1, grpc.StatusCode.INTERNAL)
    start = decide(several)()
    assert (start.registered, start.registration.attempt) == (False, NOW_US + 1)
    assert [one.calls["RegisterJob"] for one in planners] == [1, 1, 1]
    assert caplog.text.count("is asked next") == 2
    assert caplog.text.count("training goes on with the fixed fallback schedule") == 1
    several.close()
    for one in planners:
        one.stop()


def test_a_store_that_is_full_is_no_reason_to_ask_another_planner() -> None:
    planners = [FakePlanner() for _ in range(2)]
    several = PlannerClient(Endpoints.parse(",".join(one.listen() for one in planners)))
    planners[0].fail_at("RegisterJob", 1, grpc.StatusCode.RESOURCE_EXHAUSTED)
    assert not decide(several)().registered
    assert planners[1].calls["RegisterJob"] == 0
    several.close()
    for one in planners:
        one.stop()


def test_time_that_one_planner_took_is_not_given_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer_agent.startup, "REGISTER_TIMEOUT_S", PATIENCE_S)
    # The registration begins at 0 and fails at its limit, whatever this machine's clock says by then.
    times_s = chain([0.0, 0.0], repeat(PATIENCE_S))
    planners = [FakePlanner() for _ in range(2)]
    several = PlannerClient(Endpoints.parse(",".join(one.listen() for one in planners)))
    planners[0].fail_at("RegisterJob", 1, grpc.StatusCode.UNAVAILABLE)
    start = decide(several, clock=lambda: next(times_s))()
    assert (start.registered, start.registration.attempt) == (False, NOW_US + 1)
    assert [one.calls["RegisterJob"] for one in planners] == [1, 0]
    several.close()
    for one in planners:
        one.stop()


def test_a_planner_that_is_slow_to_answer_at_first_is_registered_with_all_the_same(
    planner: FakePlanner, client: PlannerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer_agent.client, "CONNECTED_S", PATIENCE_S)  # however busy this machine is
    planner.hang("GetJob")
    assert decide(client, job_id="vlm", connect_wait_s=1.0)().registered


def test_a_clock_that_went_back_does_not_keep_a_job_from_starting(planner: FakePlanner, client: PlannerClient) -> None:
    ahead = NOW_US + 5_000_000
    planner.RegisterJob(pb.RegisterJobRequest(job_id="vlm", attempt=ahead, spec=SPEC), None)
    planner.fail_at("RegisterJob", 2, grpc.StatusCode.FAILED_PRECONDITION, "superseded")
    start = decide(client, job_id="vlm")()
    assert start.registered
    assert start.registration.attempt == ahead + 1


def test_no_number_is_above_the_largest(planner: FakePlanner, client: PlannerClient) -> None:
    planner.RegisterJob(pb.RegisterJobRequest(job_id="vlm", attempt=2**63 - 1, spec=SPEC), None)
    planner.fail_at("RegisterJob", 2, grpc.StatusCode.FAILED_PRECONDITION, "superseded")
    with pytest.raises(PlannerCallError, match="superseded"):
        decide(client, job_id="vlm")()


def without_a_layer(partition: pb.Partition) -> pb.Partition:
    made = pb.Partition()
    made.CopyFrom(partition)
    made.chunks.pop()
    return made


@pytest.mark.parametrize(
    ("loaded", "answered", "why"),
    [
        (None, without_a_layer(CHOSEN), "none of this job"),
        (None, pb.Partition(), "none of this job"),
        (default_partition(SPEC), CHOSEN, "another partition than the one that is loaded"),
    ],
)
def test_a_partition_that_would_train_another_model_is_not_taken(
    planner: FakePlanner,
    client: PlannerClient,
    caplog: pytest.LogCaptureFixture,
    loaded: pb.Partition | None,
    answered: pb.Partition,
    why: str,
) -> None:
    earlier = pb.RegisterJobRequest(job_id="vlm", attempt=NOW_US, spec=SPEC, partition=answered)
    planner.RegisterJob(earlier, None)
    planner._store.registered.partition.CopyFrom(answered)
    start = decide(client, job_id="vlm", request=pb.RegisterJobRequest(spec=SPEC, partition=loaded))()
    assert not start.registered
    assert start.registration.partition == (loaded or default_partition(SPEC))
    assert why in caplog.text


@pytest.mark.parametrize(
    "code",
    [grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION],
)
def test_what_only_the_user_can_mend_is_raised(
    planner: FakePlanner, client: PlannerClient, code: grpc.StatusCode
) -> None:
    planner.RegisterJob(pb.RegisterJobRequest(job_id="vlm", attempt=1, spec=SPEC), None)
    planner.fail_at("RegisterJob", 2, code, "rank 0 needs 9 bytes, has 8")
    with pytest.raises(PlannerCallError, match="rank 0 needs 9 bytes"):
        decide(client, job_id="vlm")()
