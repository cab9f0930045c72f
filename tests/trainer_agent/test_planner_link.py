"""One rank and its planner, over real gRPC: plans come, outages pass, memories are restored, contracts hold."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

import cases
import grpc
import pytest
from dip.connecting import Endpoints
from dip.digests import partition_digest
from dip.partition import default_partition
from dip.planner.v1 import planner_pb2 as pb
from fake_planner import FakePlanner, eventually
from unhurried import waits_s
from waiting import PATIENCE_S

import trainer_agent.planner_link
from trainer_agent.backoff import Backoff
from trainer_agent.call_error import PlannerCallError
from trainer_agent.client import PlannerClient
from trainer_agent.outbox import REPORTS_KEPT_AWAY
from trainer_agent.planner_link import PlannerLink
from trainer_agent.plans import RankPlan
from trainer_agent.startup import Start
from trainer_agent.window import Unplanned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SPEC = cases.job(ranks=2)
# One that no planner would choose by itself: who keeps it was told.
LOADED = default_partition(cases.job(ranks=2, segments={"vision": 2, "language": 3}))
WAIT_S = PATIENCE_S


def start_of(*, attempt: int = 7, registered: bool = False, own_name: bool = False) -> Start:
    registration = pb.RegisterJobRequest(job_id="job", attempt=attempt, spec=SPEC, partition=LOADED)
    return Start(registration=registration, registered=registered, own_name=own_name)


def quick() -> Backoff:
    return Backoff(initial_s=0.01, maximum_s=0.02)


def batch_of(iteration: int) -> pb.Batch:
    return cases.batch(cases.documents(1 + iteration % 3))


@pytest.fixture
def planner() -> Iterator[FakePlanner]:
    planner = FakePlanner()
    yield planner
    planner.stop()


@pytest.fixture
def connect(planner: FakePlanner) -> Iterator[Callable[..., PlannerLink]]:
    links: list[PlannerLink] = []

    def connect(*, rank: int = 0, at: str | None = None, **start: bool | int) -> PlannerLink:
        client = PlannerClient(Endpoints.parse(at or planner.listen()))
        links.append(PlannerLink(client, start_of(**start), replica=0, rank=rank, backoff=quick))
        return links[-1]

    yield connect
    for link in links:
        link.close()


def planned(link: PlannerLink, iteration: int) -> RankPlan:
    found = link.take(iteration, WAIT_S)
    assert isinstance(found, RankPlan), found.reason
    return found


def train_until_planned(link: PlannerLink, first: int) -> int:
    """Go through iterations, two known ahead, as a training loop does; return the first that has a plan."""
    for iteration in range(first, first + 2):
        link.expect(iteration, batch_of(iteration))
    for wait_s in waits_s():
        link.expect(first + 2, batch_of(first + 2))
        if isinstance(link.take(first, wait_s), RankPlan):
            link.abandon([first + 1, first + 2])
            return first
        first += 1
        time.sleep(0.002)
    raise AssertionError("no iteration was planned again")


def test_batches_go_ahead_and_plans_come_back(planner: FakePlanner, connect: Callable[..., PlannerLink]) -> None:
    link = connect()
    for iteration in range(3):
        link.expect(iteration, batch_of(iteration))
    for iteration in range(3):
        found = planned(link, iteration)
        assert (found.iteration, found.batch, found.partition) == (iteration, batch_of(iteration), LOADED)
    assert planner.submitted == [0, 1, 2]
    assert link.late == link.reconnects == 0


def test_only_the_first_rank_submits(planner: FakePlanner, connect: Callable[..., PlannerLink]) -> None:
    address = planner.listen()
    first, second = connect(at=address), connect(at=address, rank=1)
    second.expect(0, batch_of(0))
    first.expect(0, batch_of(0))
    assert planned(first, 0).digest == planned(second, 0).digest
    assert planner.submitted == [0]


def test_a_planner_that_was_not_there_is_told_the_loaded_partition(
    planner: FakePlanner, connect: Callable[..., PlannerLink], tmp_path: Path
) -> None:
    address = f"unix://{tmp_path}/planner.sock"
    link = connect(at=address)
    link.expect(0, batch_of(0))
    found = link.take(0, WAIT_S)
    assert isinstance(found, Unplanned)
    assert "does not answer" in found.reason
    planner.listen(address)
    assert train_until_planned(link, 1) >= 1
    assert planner.requests["RegisterJob"][0] == start_of().registration


def test_a_job_that_is_registered_is_not_registered_again(
    planner: FakePlanner, connect: Callable[..., PlannerLink]
) -> None:
    address = planner.listen()
    client = PlannerClient(Endpoints.parse(address))
    client.register_job(start_of().registration)
    client.close()
    link = connect(at=address, registered=True)
    link.expect(0, batch_of(0))
    planned(link, 0)
    assert planner.calls["RegisterJob"] == 1


def test_a_broken_stream_goes_on_where_it_broke(planner: FakePlanner, connect: Callable[..., PlannerLink]) -> None:
    link = connect()
    for iteration in range(2):
        link.expect(iteration, batch_of(iteration))
    planned(link, 0)
    planned(link, 1)
    planner.break_streams(grpc.StatusCode.UNAVAILABLE)
    planner.wait_for_calls("StreamSchedules", 2)
    assert planner.requests["StreamSchedules"][-1] == pb.StreamSchedulesRequest(
        job_id="job", attempt=7, first_iteration=2
    )
    assert train_until_planned(link, 2) >= 2
    assert link.reconnects == 1


def test_a_stream_that_just_ends_is_opened_again(planner: FakePlanner, connect: Callable[..., PlannerLink]) -> None:
    link = connect()
    link.expect(0, batch_of(0))
    planned(link, 0)
    planner.break_streams()
    planner.wait_for_calls("StreamSchedules", 2)
    link.expect(1, batch_of(1))
    planned(link, 1)


@pytest.mark.parametrize(
    "code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL, grpc.StatusCode.RESOURCE_EXHAUSTED]
)
def test_streams_are_tried_until_one_opens(
    planner: FakePlanner, connect: Callable[..., PlannerLink], code: grpc.StatusCode
) -> None:
    for call in range(1, 5):
        planner.fail_at("StreamSchedules", call, code)
    link = connect()
    train_until_planned(link, 0)
    assert planner.calls["StreamSchedules"] == 5


def test_a_planner_that_lost_its_memory_is_told_everything_again(
    planner: FakePlanner, connect: Callable[..., PlannerLink]
) -> None:
    planner.plans_at_once = False
    link = connect()
    for iteration in range(3):
        link.expect(iteration, batch_of(iteration))
    eventually(lambda: planner.submitted == [0, 1, 2])
    planner.plan(0)
    planned(link, 0)
    planner.plans_at_once = True
    planner.lose_memory()
    eventually(lambda: {1, 2} <= {*planner.submitted[3:]})
    assert 0 not in planner.submitted[3:]  # nobody needs its plan any more
    assert train_until_planned(link, 3) >= 3
    registrations = planner.requests["RegisterJob"]
    assert len(registrations) >= 2
    assert all(partition_digest(one.partition) == partition_digest(LOADED) for one in registrations)


def test_the_rank_that_submits_need_not_be_the_one_that_notices(
    planner: FakePlanner, connect: Callable[..., PlannerLink]
) -> None:
    # Rank 1 tells the planner about the job before rank 0 does: rank 0 never sees NOT_FOUND, and submits all the same.
    link = connect()
    link.expect(0, batch_of(0))
    planned(link, 0)
    link.expect(1, batch_of(1))
    eventually(lambda: planner.submitted == [0, 1])
    planner.lose_memory()
    planner.RegisterJob(start_of().registration, None)
    eventually(lambda: planner.submitted[2:3] == [1])


def test_a_refused_batch_is_no_reason_to_wait(planner: FakePlanner, connect: Callable[..., PlannerLink]) -> None:
    planner.fail_at("SubmitBatch", 1, grpc.StatusCode.FAILED_PRECONDITION, "rank 1 needs 9 bytes, has 8")
    planner.fail_at("SubmitBatch", 2, grpc.StatusCode.INTERNAL, "a bug")
    link = connect()
    for iteration in range(3):
        link.expect(iteration, batch_of(iteration))
    for iteration, reason in enumerate(["rank 1 needs 9 bytes", "a bug"]):
        found = link.take(iteration, WAIT_S)
        assert isinstance(found, Unplanned)
        assert reason in found.reason
    planned(link, 2)


def test_batches_wait_in_order_for_an_overloaded_planner(
    planner: FakePlanner, connect: Callable[..., PlannerLink]
) -> None:
    planner.fail_at("SubmitBatch", 1, grpc.StatusCode.RESOURCE_EXHAUSTED, retry_after_s=0.05)
    link = connect()
    for iteration in range(2):
        link.expect(iteration, batch_of(iteration))
    planned(link, 0)
    planned(link, 1)
    assert planner.submitted == [0, 1]
    assert planner.calls["SubmitBatch"] == 3


def test_an_iteration_that_was_dropped_as_too_old_is_passed_over(
    planner: FakePlanner, connect: Callable[..., PlannerLink]
) -> None:
    planner.fail_at("StreamSchedules", 1, grpc.StatusCode.OUT_OF_RANGE, "iteration 0 was dropped")
    link = connect()
    for iteration in range(2):
        link.expect(iteration, batch_of(iteration))
    planner.wait_for_calls("StreamSchedules", 2)
    assert planner.requests["StreamSchedules"][1].first_iteration == 1
    assert isinstance(link.take(0, WAIT_S), Unplanned)
    planned(link, 1)


def test_a_newer_attempt_ends_the_asking_not_the_training(
    planner: FakePlanner, connect: Callable[..., PlannerLink], caplog: pytest.LogCaptureFixture
) -> None:
    link = connect()
    link.expect(0, batch_of(0))
    planned(link, 0)
    with caplog.at_level(logging.WARNING):
        planner.RegisterJob(start_of(attempt=8).registration, None)
        planner.break_streams()
        eventually(lambda: "asks for no more plans" in caplog.text)
    for iteration in range(1, 4):
        link.expect(iteration, batch_of(iteration))
        found = link.take(iteration, WAIT_S)
        assert isinstance(found, Unplanned)
        assert "attempt 8 is newer" in found.reason
    assert caplog.text.count("asks for no more plans") == 1
    link.close()
    assert planner.calls["CloseJob"] == 0


def test_a_planner_that_keeps_another_partition_is_not_asked(
    planner: FakePlanner, connect: Callable[..., PlannerLink], caplog: pytest.LogCaptureFixture
) -> None:
    address = planner.listen()
    planner.RegisterJob(pb.RegisterJobRequest(job_id="job", attempt=7, spec=SPEC), None)
    link = connect(at=address)
    link.expect(0, batch_of(0))
    found = link.take(0, WAIT_S)
    assert isinstance(found, Unplanned)
    eventually(lambda: "keeps another partition" in caplog.text)


@pytest.mark.parametrize(
    ("rpc", "code"),
    [
        ("SubmitBatch", grpc.StatusCode.INVALID_ARGUMENT),
        ("SubmitBatch", grpc.StatusCode.ALREADY_EXISTS),
        ("StreamSchedules", grpc.StatusCode.INVALID_ARGUMENT),
        ("RegisterJob", grpc.StatusCode.INVALID_ARGUMENT),
    ],
)
def test_programming_errors_are_raised_in_the_training_loop(
    planner: FakePlanner, connect: Callable[..., PlannerLink], rpc: str, code: grpc.StatusCode
) -> None:
    planner.fail_at(rpc, 1, code, "what you did")
    link = connect()
    link.expect(0, batch_of(0))
    with pytest.raises(PlannerCallError, match="what you did"):  # noqa: PT012 - at this call or the next
        link.take(0, WAIT_S)
        link.expect(1, batch_of(1))
        link.take(1, WAIT_S)


def test_reports_are_sent_and_named(
    planner: FakePlanner, connect: Callable[..., PlannerLink], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer_agent.planner_link, "DRAIN_S", PATIENCE_S)  # however busy this machine is
    link = connect()
    link.expect(0, batch_of(0))
    planned(link, 0)
    link.report(pb.ReportExecutionRequest(attempt=7, iteration=0))
    link.close()  # sends what waits
    assert planner.requests["ReportExecution"] == [pb.ReportExecutionRequest(job_id="job", attempt=7)]
    assert link.dropped_reports == 0


def test_the_newest_reports_outlast_a_planner_that_is_away(
    planner: FakePlanner, connect: Callable[..., PlannerLink], tmp_path: Path
) -> None:
    endpoint = planner.listen(f"unix://{tmp_path}/planner.sock")  # which nobody else takes meanwhile
    link = connect(at=endpoint)
    link.expect(0, batch_of(0))
    planned(link, 0)
    planner.stop()
    for iteration in range(REPORTS_KEPT_AWAY + 3):
        link.report(pb.ReportExecutionRequest(attempt=7, iteration=iteration))
    eventually(lambda: link.dropped_reports == 3)
    planner.listen(endpoint)
    kept = list(range(3, REPORTS_KEPT_AWAY + 3))
    eventually(lambda: [report.iteration for report in planner.requests["ReportExecution"]] == kept)
    assert link.dropped_reports == 3


def test_refused_reports_are_said_once_and_stop_nothing(
    planner: FakePlanner, connect: Callable[..., PlannerLink], caplog: pytest.LogCaptureFixture
) -> None:
    for call in (1, 2):
        planner.fail_at("ReportExecution", call, grpc.StatusCode.INVALID_ARGUMENT, "actions[0]: unknown")
    link = connect()
    link.expect(0, batch_of(0))
    planned(link, 0)
    for iteration in range(3):
        link.report(pb.ReportExecutionRequest(attempt=7, iteration=iteration))
    planner.wait_for_calls("ReportExecution", 3)
    link.expect(1, batch_of(1))
    planned(link, 1)
    assert caplog.text.count("a report was not taken") == 1


def test_a_name_of_this_start_alone_is_given_back(
    planner: FakePlanner, connect: Callable[..., PlannerLink], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer_agent.planner_link, "DRAIN_S", PATIENCE_S)  # however busy this machine is
    link = connect(own_name=True)
    link.expect(0, batch_of(0))
    planned(link, 0)
    link.close()
    assert planner.requests["CloseJob"] == [pb.CloseJobRequest(job_id="job")]


@pytest.mark.parametrize("away", [False, True])
def test_closing_leaves_no_thread(planner: FakePlanner, connect: Callable[..., PlannerLink], away: bool) -> None:
    before = set(threading.enumerate())
    link = connect()
    link.expect(0, batch_of(0))
    planned(link, 0)
    if away:
        planner.stop()
        link.expect(1, batch_of(1))
    link.close()
    link.close()
    assert not [one for one in set(threading.enumerate()) - before if one.name.startswith("dip-")]


def test_a_link_that_was_never_used_closes_too(connect: Callable[..., PlannerLink]) -> None:
    connect().close()


def test_a_planner_that_ends_nothing_but_a_stream_is_waited_for(
    planner: FakePlanner, connect: Callable[..., PlannerLink]
) -> None:
    link = connect()
    link.expect(0, batch_of(0))
    planned(link, 0)
    planner.plans_at_once = False
    planner.break_streams(grpc.StatusCode.UNAVAILABLE, "the token of this stream is withdrawn; connect again")
    planner.wait_for_calls("StreamSchedules", 2)
    link.expect(1, batch_of(1))
    found: list[RankPlan | Unplanned] = []
    taking = threading.Thread(target=lambda: found.append(link.take(1, WAIT_S)))
    taking.start()
    eventually(lambda: 1 in planner.submitted)
    planner.plan(1)
    taking.join(WAIT_S)
    assert isinstance(found[0], RankPlan)
