"""Being turned away by a planner: said once, waited out until something may have changed, never for good."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

import grpc
import pytest
from clocks import Clock

from trainer_agent.admission import ASK_EVERY_S, LOOK_EVERY_S, Admission
from trainer_agent.backoff import Backoff
from trainer_agent.call_error import PlannerCallError

if TYPE_CHECKING:
    from collections.abc import Callable

DENIED = PlannerCallError(
    rpc="SubmitBatch", endpoint="planner:1", code=grpc.StatusCode.UNAUTHENTICATED, details="the token is not known here"
)


class Looks(threading.Event):
    """The end of a session, which never comes: counts the looks at the files, each a step of the clock."""

    def __init__(self, clock: Clock, at_look: Callable[[int], object] = lambda _: None) -> None:
        super().__init__()
        self.count = 0
        self._clock = clock
        self._at_look = at_look

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout == LOOK_EVERY_S
        self.count += 1
        self._clock.now_s += timeout
        self._at_look(self.count)
        return False


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_where_nothing_changes_it_is_asked_again_about_once_a_minute(clock: Clock) -> None:
    admission = Admission(lambda: False, clock=clock)
    for _ in range(20):
        looks = Looks(clock)
        admission.wait(looks)
        assert ASK_EVERY_S / 2 <= looks.count * LOOK_EVERY_S <= ASK_EVERY_S + LOOK_EVERY_S


def test_two_agents_do_not_ask_in_step(clock: Clock) -> None:
    counts = set()
    for _ in range(20):
        looks = Looks(clock)
        Admission(lambda: False, clock=clock).wait(looks)
        counts.add(looks.count)
    assert len(counts) > 1


def test_it_is_asked_again_at_once_where_the_files_changed(clock: Clock) -> None:
    changed: list[bool] = []
    looks = Looks(clock, lambda count: changed.append(True) if count == 3 else None)
    Admission(lambda: bool(changed), clock=clock).wait(looks)
    assert looks.count == 3


def test_it_is_asked_again_at_once_where_another_thread_was_let_in(clock: Clock) -> None:
    admission = Admission(lambda: False, clock=clock)
    admission.denied("outbox", DENIED)
    admission.denied("prefetch", DENIED)
    looks = Looks(clock, lambda count: admission.granted("outbox") if count == 2 else None)
    admission.wait(looks)
    assert looks.count == 2


def test_the_end_of_the_session_ends_the_waiting() -> None:
    over = threading.Event()
    over.set()
    Admission(lambda: False, asking=lambda: Backoff(initial_s=1e6, maximum_s=1e6)).wait(over)


def test_it_is_said_once_however_many_are_turned_away(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    admission = Admission(lambda: False)
    admission.granted("outbox")
    for who in ("outbox", "prefetch", "outbox"):
        admission.denied(who, DENIED)
    (said,) = caplog.records
    assert said.levelno == logging.ERROR
    assert said.getMessage().startswith("SubmitBatch at planner planner:1: UNAUTHENTICATED: the token is not known")
    assert "fixed fallback" in said.getMessage()
    caplog.clear()
    admission.granted("prefetch")
    admission.granted("prefetch")
    assert not caplog.records
    admission.granted("outbox")
    assert [record.getMessage() for record in caplog.records] == ["the planner lets this client in again"]
    admission.denied("outbox", DENIED)
    assert caplog.records[-1].levelno == logging.ERROR
