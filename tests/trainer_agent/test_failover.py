"""Planners that share a store stand in for each other: one dies, hangs or comes back, and no schedule is lost."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import cases
import grpc
import pytest
from dip.connecting import Endpoints
from dip.partition import default_partition
from dip.planner.v1 import planner_pb2 as pb
from fake_planner import FakePlanner, FakeStore, eventually
from unhurried import waits_s
from waiting import PATIENCE_S

from trainer_agent.backoff import Backoff
from trainer_agent.client import PlannerClient
from trainer_agent.connections import Connections
from trainer_agent.planner_link import PlannerLink
from trainer_agent.plans import RankPlan
from trainer_agent.silence import Silence
from trainer_agent.startup import Start
from trainer_agent.window import PATIENCE, Unplanned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SPEC = cases.job(ranks=2)
LOADED = default_partition(cases.job(ranks=2, segments={"vision": 2, "language": 3}))
REGISTRATION = pb.RegisterJobRequest(job_id="job", attempt=7, spec=SPEC, partition=LOADED)
WAIT_S = PATIENCE_S
NEVER_S = 10_000.0


def quick() -> Backoff:
    return Backoff(initial_s=0.01, maximum_s=0.02)


@dataclass
class Pair:
    """Two planners of one store, and the links of ranks that may ask both."""

    folder: Path
    store: FakeStore = field(default_factory=FakeStore)
    links: list[PlannerLink] = field(default_factory=list)
    planners: list[FakePlanner] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.addresses = [f"unix://{self.folder}/{number}.sock" for number in range(2)]
        self.planners = [FakePlanner(store=self.store) for _ in self.addresses]

    def listen(self, *numbers: int) -> None:
        """Start some of the planners, also again after they were stopped."""
        for number in numbers:
            self.planners[number].listen(self.addresses[number])

    def connect(self, *, rank: int = 0, returning_s: float = NEVER_S, silence_s: float = NEVER_S) -> PlannerLink:
        """Make a rank's link to both; the first is preferred."""
        endpoints = Endpoints.parse(",".join(self.addresses))
        returning = Backoff(initial_s=returning_s, maximum_s=returning_s)
        link = PlannerLink(
            PlannerClient(endpoints, connections=Connections(endpoints, returning=returning)),
            Start(registration=REGISTRATION, registered=False, own_name=False),
            replica=0,
            rank=rank,
            backoff=quick,
            silence=Silence(least_s=silence_s),
        )
        self.links.append(link)
        return link


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path)
    yield pair
    for link in pair.links:
        link.close()
    for planner in pair.planners:
        planner.stop()


def batch_of(iteration: int) -> pb.Batch:
    return cases.batch(cases.documents(1 + iteration % 3))


def planned(link: PlannerLink, iteration: int) -> RankPlan:
    found = link.take(iteration, WAIT_S)
    assert isinstance(found, RankPlan), found.reason
    return found


def train(link: PlannerLink, first: int, until: Callable[[bool], object]) -> int:
    """Go through iterations, one known ahead, until one that had a plan, or none, is as wanted."""
    link.expect(first, batch_of(first))
    for wait_s in waits_s():
        link.expect(first + 1, batch_of(first + 1))
        if until(isinstance(link.take(first, wait_s), RankPlan)):
            link.abandon([first + 1])
            return first + 2
        first += 1
        time.sleep(0.002)
    raise AssertionError("it never came about")


def test_the_preferred_planner_serves_alone_as_long_as_it_does(pair: Pair) -> None:
    pair.listen(0, 1)
    link = pair.connect()
    for iteration in range(5):
        link.expect(iteration, batch_of(iteration))
        planned(link, iteration)
    assert not pair.planners[1].calls
    assert link.reconnects == 0


def test_a_planner_that_dies_is_replaced_and_no_schedule_is_lost(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    pair.listen(0, 1)
    first, second = pair.planners
    link = pair.connect()
    with caplog.at_level(logging.INFO):
        for iteration in range(3):
            link.expect(iteration, batch_of(iteration))
        planned(link, 0)
        first.plans_at_once = False
        link.expect(3, batch_of(3))
        eventually(lambda: first.submitted == [0, 1, 2, 3])  # planned by nobody yet
        first.stop()
        for iteration in range(1, 6):
            if iteration > 3:
                link.expect(iteration, batch_of(iteration))
            assert planned(link, iteration).batch == batch_of(iteration)
    assert 3 in second.submitted
    assert second.calls["RegisterJob"] == 0  # it knows the job from the store
    assert link.reconnects == 1
    gone, there = pair.addresses
    said = [message for message in caplog.messages if "asked next" in message or "in place of" in message]
    assert len(said) == 2
    assert said[0].startswith(f"StreamSchedules at planner {gone}: ")
    assert said[0].endswith(f"; planner {there} is asked next")
    assert said[1] == f"planner {there} answers in place of planner {gone}"


def test_every_rank_moves_on_by_itself_and_gets_the_same_plans(pair: Pair) -> None:
    pair.listen(0, 1)
    ranks = [pair.connect(rank=0), pair.connect(rank=1)]
    for iteration in range(6):
        for link in ranks:
            link.expect(iteration, batch_of(iteration))
        assert len({planned(link, iteration).digest for link in ranks}) == 1
        if iteration == 2:
            pair.planners[0].stop()
    assert pair.planners[1].calls["StreamSchedules"] == 2


def test_a_planner_that_hangs_is_given_up_after_some_iterations(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    pair.listen(0, 1)
    first, second = pair.planners
    link = pair.connect(silence_s=0.0)
    link.expect(0, batch_of(0))
    planned(link, 0)
    first.hang()
    for iteration in range(1, PATIENCE + 2):
        link.expect(iteration, batch_of(iteration))
    for iteration in range(1, PATIENCE + 1):
        assert second.calls["StreamSchedules"] == 0
        assert isinstance(link.take(iteration, 0.01), Unplanned)
    planned(link, PATIENCE + 1)
    assert PATIENCE + 1 in second.submitted  # which was on its way to the one that hangs
    assert "it answered nothing for several iterations" in caplog.text


@pytest.mark.parametrize("rpc", ["RegisterJob", "SubmitBatch", "StreamSchedules"])
def test_whatever_it_is_that_hangs(pair: Pair, rpc: str) -> None:
    pair.listen(0, 1)
    pair.planners[0].hang(rpc)
    train(pair.connect(silence_s=0.0), 0, bool)
    assert pair.planners[1].calls["StreamSchedules"] >= 1


def test_planners_that_all_take_long_are_not_changed_at_every_turn(pair: Pair) -> None:
    pair.listen(0, 1)
    for planner in pair.planners:
        planner.plans_at_once = False
    link = pair.connect(silence_s=0.0)
    link.expect(0, batch_of(0))
    pair.planners[0].wait_for_calls("StreamSchedules", 1)
    for iteration in range(1, PATIENCE + 10):
        link.expect(iteration, batch_of(iteration))
        assert isinstance(link.take(iteration, 0.01), Unplanned)
    pair.planners[1].wait_for_calls("StreamSchedules", 1)
    assert sum(planner.calls["StreamSchedules"] for planner in pair.planners) == 2
    assert link.reconnects == 1


def test_a_planner_alone_is_asked_on_and_on_though_it_says_nothing(pair: Pair) -> None:
    pair.listen(0)
    pair.planners[0].plans_at_once = False
    client = PlannerClient(Endpoints.parse(pair.addresses[0]))
    start = Start(registration=REGISTRATION, registered=False, own_name=False)
    link = PlannerLink(client, start, replica=0, rank=0, backoff=quick, silence=Silence(least_s=0.0))
    pair.links.append(link)
    for iteration in range(40):
        link.expect(iteration, batch_of(iteration))
        assert isinstance(link.take(iteration, 0.0), Unplanned)
    pair.planners[0].wait_for_calls("StreamSchedules", 1)
    assert link.reconnects == 0


def test_when_both_are_away_training_goes_on_and_comes_back_by_itself(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    pair.listen(0, 1)
    link = pair.connect()
    after = train(link, 0, bool)
    caplog.clear()
    with caplog.at_level(logging.INFO):
        for planner in pair.planners:
            planner.stop()
        after = train(link, after, lambda has_plan: not has_plan)
        lost = link.reconnects
        eventually(lambda: link.reconnects > lost + 10)
        assert caplog.text.count("training goes on with the fixed fallback schedule") == 1
        assert 1 <= caplog.text.count("is asked next") <= 2  # the second may have answered before it was stopped
        link.expect(after, batch_of(after))
        before = time.monotonic()
        found = link.take(after, WAIT_S)
        assert isinstance(found, Unplanned)
        assert "does not answer" in found.reason
        assert time.monotonic() - before < WAIT_S / 2  # nobody waits for planners that are all known to be away
        pair.listen(1)
        train(link, after + 1, bool)


def test_a_planner_that_does_not_know_the_job_is_told_everything_again(pair: Pair) -> None:
    pair.listen(0, 1)
    link = pair.connect()
    for iteration in range(2):
        link.expect(iteration, batch_of(iteration))
    planned(link, 0)
    planned(link, 1)
    pair.planners[0].stop()
    pair.planners[1].lose_memory()  # the store's: it came back empty
    train(link, 2, bool)
    assert pair.planners[1].requests["RegisterJob"][0] == REGISTRATION


def test_the_stream_returns_to_the_preferred_planner_and_nothing_is_lost(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    pair.listen(1)
    link = pair.connect(returning_s=0.01)
    after = train(link, 0, bool)
    assert not pair.planners[0].calls
    pair.listen(0)
    caplog.clear()
    with caplog.at_level(logging.INFO):
        iteration, deadline = after, time.monotonic() + WAIT_S
        while not pair.planners[0].calls["StreamSchedules"]:
            link.expect(iteration, batch_of(iteration))
            planned(link, iteration)
            iteration += 1
            assert time.monotonic() < deadline
        link.expect(iteration, batch_of(iteration))
        planned(link, iteration)
    assert pair.planners[0].submitted
    assert caplog.messages[-1] == "planner {} answers in place of planner {}".format(*pair.addresses)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_draining_planner_is_left_without_a_fallback(pair: Pair) -> None:
    pair.listen(0, 1)
    link = pair.connect()
    for iteration in range(10):
        link.expect(iteration, batch_of(iteration))
        planned(link, iteration)
        if iteration == 4:
            pair.planners[0].break_streams(grpc.StatusCode.UNAVAILABLE, "the planner is stopping")
    assert pair.planners[1].calls["StreamSchedules"] == 1
    assert link.reconnects == 1


def test_closing_with_one_that_hangs_is_quick(pair: Pair) -> None:
    pair.listen(0, 1)
    link = pair.connect()
    link.expect(0, batch_of(0))
    planned(link, 0)
    pair.planners[0].hang()
    link.expect(1, batch_of(1))
    pair.planners[0].wait_for_calls("SubmitBatch", 2)
    link.close()
    assert link._prefetcher.join(0.0)
    assert link._outbox.join(0.0)
