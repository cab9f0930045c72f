"""A planner that turns a rank away: it trains on, says once what is wrong, and has plans again when it is set right."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import cases
import grpc
import pytest
from dip.connecting import ClientFiles, Endpoints
from dip.partition import default_partition
from dip.planner.v1 import planner_pb2 as pb
from fake_planner import FakePlanner, FakeStore, eventually
from unhurried import waits_s
from waiting import PATIENCE_S, until

from trainer_agent.admission import Admission
from trainer_agent.backoff import Backoff
from trainer_agent.client import PlannerClient
from trainer_agent.planner_link import PlannerLink
from trainer_agent.plans import RankPlan
from trainer_agent.startup import Start
from trainer_agent.window import Unplanned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SPEC = cases.job(ranks=2)
REGISTRATION = pb.RegisterJobRequest(job_id="job", attempt=7, spec=SPEC, partition=default_partition(SPEC))
WAIT_S = PATIENCE_S
LOOK_S = 0.01
GOOD, BAD, NEW = "good-t0ken", "bad-t0ken", "new-t0ken"


class Rank:
    """One rank's link to planners, with a token file of its own."""

    def __init__(self, file: Path, endpoints: str, *, rank: int = 0, asks_every_s: float = 1e6) -> None:
        self.file = file
        self.file.write_text(GOOD)
        self.client = PlannerClient(Endpoints.parse(endpoints), files=ClientFiles(token_file=str(file)))
        admission = Admission(
            self.client.would_ask_otherwise,
            look_every_s=LOOK_S,
            asking=lambda: Backoff(initial_s=asks_every_s, maximum_s=asks_every_s),
        )
        self.link = PlannerLink(
            self.client,
            Start(registration=REGISTRATION, registered=False, own_name=False),
            replica=0,
            rank=rank,
            backoff=lambda: Backoff(initial_s=0.01, maximum_s=0.02),
            admission=admission,
        )
        self.iteration = 0

    def step(self, wait_s: float = WAIT_S) -> RankPlan | Unplanned:
        """Go through one iteration, as a training loop does."""
        self.link.expect(self.iteration, cases.batch(cases.documents(1 + self.iteration % 3)))
        self.iteration += 1
        return self.link.take(self.iteration - 1, wait_s)

    def step_until_planned(self) -> None:
        assert any(isinstance(self.step(wait_s), RankPlan) for wait_s in waits_s()), "no iteration was planned again"


@pytest.fixture
def planner() -> Iterator[FakePlanner]:
    planner = FakePlanner(tokens=frozenset({GOOD}))
    yield planner
    planner.stop()


@pytest.fixture
def connect(planner: FakePlanner, tmp_path: Path) -> Iterator[Callable[..., Rank]]:
    ranks: list[Rank] = []

    def connect(endpoints: str = "", **how: float) -> Rank:
        ranks.append(Rank(tmp_path / f"token{len(ranks)}", endpoints or planner.listen(), **how))
        return ranks[-1]

    yield connect
    for rank in ranks:
        rank.link.close()


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]


def test_a_token_that_is_wrong_from_the_start_is_set_right_in_its_file(
    planner: FakePlanner, connect: Callable[..., Rank], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    rank = connect()
    rank.file.write_text(BAD)
    found = rank.step(WAIT_S)
    assert isinstance(found, Unplanned)
    assert "the planner turns this client away (UNAUTHENTICATED: the token is not known here" in found.reason
    eventually(lambda: errors(caplog))
    calls = sum(planner.calls.values())
    found = rank.step(WAIT_S)  # is not waited for, and asks nothing
    assert isinstance(found, Unplanned)
    assert sum(planner.calls.values()) <= calls + 1  # the other thread, which may be on its way
    rank.file.write_text(GOOD)
    rank.step_until_planned()
    (said,) = errors(caplog)
    assert f"the token in DIP_TOKEN_FILE {str(rank.file)!r}" in said
    assert "fixed fallback" in said
    eventually(lambda: "the planner lets this client in again" in caplog.text)  # once both threads are
    assert GOOD not in caplog.text
    assert BAD not in caplog.text


def test_a_token_that_is_rotated_wrongly_during_a_run_breaks_no_stream(
    planner: FakePlanner, connect: Callable[..., Rank], caplog: pytest.LogCaptureFixture
) -> None:
    rank = connect()
    rank.step_until_planned()
    rank.file.write_text(BAD)
    found: list[RankPlan | Unplanned] = []

    def is_held_up() -> bool:
        found.append(rank.step(0.05))
        return "the batch is not handed over (UNAUTHENTICATED: " in getattr(found[-1], "reason", "")

    until(is_held_up)
    assert not any(isinstance(one, RankPlan) for one in found)
    eventually(lambda: errors(caplog))
    rank.file.write_text(GOOD)
    rank.step_until_planned()
    assert planner.calls["StreamSchedules"] == 1
    assert rank.link.reconnects == 0
    assert len(errors(caplog)) == 1


def test_what_is_set_right_at_the_planner_is_found_out_by_asking_seldom(
    planner: FakePlanner, connect: Callable[..., Rank]
) -> None:
    rank = connect(asks_every_s=0.1)
    rank.file.write_text(NEW)
    assert isinstance(rank.step(WAIT_S), Unplanned)
    planner.tokens = frozenset({GOOD, NEW})
    rank.step_until_planned()


def test_the_other_rank_keeps_its_plans(planner: FakePlanner, connect: Callable[..., Rank]) -> None:
    address = planner.listen()
    first, second = connect(address), connect(address, rank=1)
    second.file.write_text(BAD)
    for _ in range(3):
        assert isinstance(first.step(), RankPlan)
        assert isinstance(second.step(0.05), Unplanned)
    second.file.write_text(GOOD)
    for wait_s in waits_s():
        assert isinstance(first.step(), RankPlan)
        if isinstance(second.step(wait_s), RankPlan):
            break
    else:
        pytest.fail("the second rank has no plans again")
    assert first.link.reconnects == 0


def test_a_permission_for_another_job_is_waited_out_too(
    planner: FakePlanner, connect: Callable[..., Rank], caplog: pytest.LogCaptureFixture
) -> None:
    planner.fail_at("RegisterJob", 1, grpc.StatusCode.PERMISSION_DENIED, "token:b may not touch job 'job'")
    rank = connect(asks_every_s=0.1)
    rank.step_until_planned()
    (said,) = errors(caplog)
    assert "PERMISSION_DENIED: token:b may not touch job 'job'" in said


def test_reports_wait_meanwhile(planner: FakePlanner, connect: Callable[..., Rank]) -> None:
    rank = connect()
    rank.step_until_planned()
    rank.file.write_text(BAD)
    rank.link.report(pb.ReportExecutionRequest(attempt=7, iteration=0))
    eventually(lambda: len(planner.requests["ReportExecution"]) == 1)  # turned away
    rank.file.write_text(GOOD)
    rank.link.report(pb.ReportExecutionRequest(attempt=7, iteration=1))
    eventually(lambda: [report.iteration for report in planner.requests["ReportExecution"]] == [0, 0, 1])
    assert rank.link.dropped_reports == 0


def test_a_planner_whose_access_file_is_old_is_left_for_one_that_knows_the_token(
    connect: Callable[..., Rank], caplog: pytest.LogCaptureFixture
) -> None:
    store = FakeStore()
    planners = [FakePlanner(store=store, tokens=frozenset({known})) for known in (NEW, GOOD)]
    rank = connect(",".join(planner.listen() for planner in planners))
    rank.step_until_planned()
    assert planners[0].calls["StreamSchedules"] == 0
    assert "is asked next" in caplog.text
    rank.link.close()
    for planner in planners:
        planner.stop()


def test_where_all_planners_turn_it_away_it_asks_none_until_something_changes(
    connect: Callable[..., Rank], caplog: pytest.LogCaptureFixture
) -> None:
    store = FakeStore()
    planners = [FakePlanner(store=store, tokens=frozenset({GOOD})) for _ in range(2)]
    rank = connect(",".join(planner.listen() for planner in planners))
    rank.file.write_text(BAD)
    assert isinstance(rank.step(WAIT_S), Unplanned)
    eventually(lambda: errors(caplog))
    rank.file.write_text(GOOD)
    rank.step_until_planned()
    assert len(errors(caplog)) == 1
    rank.link.close()
    for planner in planners:
        planner.stop()


def test_a_stream_whose_token_is_withdrawn_after_it_was_replaced_is_opened_again_and_no_plan_is_lost(
    planner: FakePlanner, connect: Callable[..., Rank], caplog: pytest.LogCaptureFixture
) -> None:
    rank = connect()
    rank.step_until_planned()
    planner.tokens = frozenset({GOOD, NEW})
    rank.file.write_text(NEW)
    assert isinstance(rank.step(), RankPlan)
    planner.tokens = frozenset({NEW})
    planner.break_streams(grpc.StatusCode.UNAUTHENTICATED, "the token is not known any more")
    assert isinstance(rank.step(), RankPlan)
    assert planner.calls["StreamSchedules"] == 2
    assert not errors(caplog)
