"""What is sent in the background: in order, again when it may be lost, bounded, and never waited for."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, cast

import cases
import grpc
import pytest
from dip.planner.v1 import planner_pb2 as pb
from fake_planner import eventually
from waiting import PATIENCE_S

from trainer_agent.backoff import Backoff
from trainer_agent.call_error import PlannerCallError
from trainer_agent.outbox import MAX_REPORTS, Outbox
from trainer_agent.session import PlannerSession

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trainer_agent.client import PlannerClient

BATCH = cases.batch(cases.documents(1))


class GatedClient:
    """Lets a call through when the gate is open, with the outcome that is scripted for it."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.outcomes: list[grpc.StatusCode | None] = []
        self.entered: list[int] = []
        self.reports: list[int] = []

    def would_ask_otherwise(self) -> bool:
        return False

    def submit_batch(self, request: pb.SubmitBatchRequest) -> None:
        self.entered.append(request.iteration)
        self._pass("SubmitBatch")

    def report_execution(self, request: pb.ReportExecutionRequest) -> None:
        self._pass("ReportExecution")
        self.reports.append(request.iteration)

    def _pass(self, rpc: str) -> None:
        assert self.gate.wait(PATIENCE_S)
        outcome = self.outcomes.pop(0) if self.outcomes else None
        if outcome is not None:
            raise PlannerCallError(rpc=rpc, endpoint="planner:1", code=outcome, details="scripted")


@pytest.fixture
def client() -> GatedClient:
    return GatedClient()


@pytest.fixture
def make(client: GatedClient) -> Iterator[Callable[[], Outbox]]:
    made: list[tuple[PlannerSession, Outbox]] = []

    def make() -> Outbox:
        registration = pb.RegisterJobRequest(job_id="job", attempt=7)
        session = PlannerSession(
            cast("PlannerClient", client),
            registration,
            replica=0,
            rank=0,
            registered=True,
            on_over=lambda _: None,
        )
        backoff = Backoff(initial_s=0.001, maximum_s=0.002)
        outbox = Outbox(session, on_refused=lambda *_: None, backoff=backoff)
        outbox.start()
        made.append((session, outbox))
        return outbox

    yield make
    for session, outbox in made:
        session.end()
        client.gate.set()
        assert outbox.join(PATIENCE_S)


def test_submitting_never_waits(client: GatedClient, make: Callable[[], Outbox]) -> None:
    outbox = make()  # the gate is closed: a planner that does not answer
    for iteration in range(1000):
        outbox.submit(iteration, BATCH)
    assert len(client.entered) <= 1


def test_batches_that_nobody_needs_any_more_are_not_sent(client: GatedClient, make: Callable[[], Outbox]) -> None:
    outbox = make()
    for iteration in range(4):
        outbox.submit(iteration, BATCH)
    eventually(lambda: client.entered == [0])
    for iteration in range(3):
        outbox.forget(iteration)
    client.gate.set()
    assert outbox.drain(PATIENCE_S)
    assert client.entered == [0, 3]


def test_what_is_on_its_way_when_everything_is_to_be_sent_again_is_sent_again_too(
    client: GatedClient, make: Callable[[], Outbox]
) -> None:
    outbox = make()
    outbox.submit(0, BATCH)
    eventually(lambda: client.entered == [0])
    outbox.submit_all_again()
    client.gate.set()
    assert outbox.drain(PATIENCE_S)
    assert client.entered == [0, 0]


def test_a_batch_that_failed_keeps_its_place(client: GatedClient, make: Callable[[], Outbox]) -> None:
    client.outcomes = [grpc.StatusCode.UNAVAILABLE] * 3
    outbox = make()
    for iteration in range(3):
        outbox.submit(iteration, BATCH)
    client.gate.set()
    eventually(lambda: client.entered == [0, 0, 0, 0, 1, 2])


def test_reports_that_pile_up_lose_their_oldest(client: GatedClient, make: Callable[[], Outbox]) -> None:
    outbox = make()
    outbox.submit(0, BATCH)
    eventually(lambda: client.entered == [0])  # it is busy
    for iteration in range(MAX_REPORTS + 5):
        outbox.report(pb.ReportExecutionRequest(iteration=iteration))
    assert outbox.dropped_reports == 5
    client.gate.set()
    assert outbox.drain(PATIENCE_S)
    assert client.reports == list(range(5, MAX_REPORTS + 5))


def test_batches_go_before_reports(client: GatedClient, make: Callable[[], Outbox]) -> None:
    outbox = make()
    outbox.submit(0, BATCH)
    eventually(lambda: client.entered == [0])
    outbox.report(pb.ReportExecutionRequest(iteration=0))
    outbox.submit(1, BATCH)
    client.outcomes = [None, None, grpc.StatusCode.UNAVAILABLE]
    client.gate.set()
    eventually(lambda: client.reports == [0])
    assert client.entered == [0, 1]
    assert outbox.dropped_reports == 0
