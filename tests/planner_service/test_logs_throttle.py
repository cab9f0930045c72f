"""Shows that lines whose number others decide are few, and that those left out are counted."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import pytest
from waiting import PATIENCE_S

from planner_service.logs import Throttle
from planner_service.logs.fields import fields_of

if TYPE_CHECKING:
    from collections.abc import Callable


class Time:
    """A clock that a test moves, and what is to be called at which time."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._due: list[tuple[float, Callable[[], None]]] = []

    def clock(self) -> float:
        return self.now_s

    def call_later(self, after_s: float, call: Callable[[], None]) -> None:
        self._due.append((self.now_s + after_s, call))

    def go_to(self, now_s: float) -> None:
        self.now_s = now_s
        due = [call for when_s, call in self._due if when_s <= now_s]
        self._due = [(when_s, call) for when_s, call in self._due if when_s > now_s]
        for call in due:
            call()

    @property
    def num_due(self) -> int:
        return len(self._due)


@pytest.fixture
def log() -> logging.Logger:
    return logging.getLogger("planner_service.of_test_throttle")


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture, log: logging.Logger) -> Callable[[], list[str]]:
    caplog.set_level(logging.INFO, log.name)

    def take() -> list[str]:
        made = [f"{record.getMessage()} {fields_of(record)}" for record in caplog.records]
        caplog.clear()
        return made

    return take


def test_the_first_lines_are_written_and_the_rest_are_counted(
    log: logging.Logger, lines: Callable[[], list[str]]
) -> None:
    time = Time()
    throttle = Throttle(log, most=2, period_s=10, clock=time.clock, call_later=time.call_later)
    for number in range(100_000):
        throttle.line(logging.INFO, "refused %d", number, kind={"code": "NOT_FOUND"}, job=f"job-{number}")
    assert lines() == [
        "refused 0 {'code': 'NOT_FOUND', 'job': 'job-0'}",
        "refused 1 {'code': 'NOT_FOUND', 'job': 'job-1'}",
    ]
    time.go_to(10)
    assert lines() == ["99998 more such lines are left out {'code': 'NOT_FOUND'}"]
    throttle.line(logging.INFO, "refused", kind={"code": "NOT_FOUND"})
    assert lines() == ["refused {'code': 'NOT_FOUND'}"]
    time.go_to(20)
    assert lines() == []
    assert time.num_due == 0, "nothing is kept of a kind that is quiet"


def test_kinds_do_not_share(log: logging.Logger, lines: Callable[[], list[str]]) -> None:
    time = Time()
    throttle = Throttle(log, most=1, period_s=10, clock=time.clock, call_later=time.call_later)
    for code in ("NOT_FOUND", "NOT_FOUND", "INTERNAL"):
        throttle.line(logging.INFO, "refused", kind={"code": code})
    assert lines() == ["refused {'code': 'NOT_FOUND'}", "refused {'code': 'INTERNAL'}"]


def test_a_line_after_a_period_counts_for_the_next_even_if_the_end_is_told_late(
    log: logging.Logger, lines: Callable[[], list[str]]
) -> None:
    time = Time()
    throttle = Throttle(log, most=1, period_s=10, clock=time.clock, call_later=time.call_later)
    for _ in range(3):
        throttle.line(logging.INFO, "refused", kind={})
    time.now_s = 11
    throttle.line(logging.INFO, "again", kind={})
    throttle.line(logging.INFO, "refused", kind={})
    time.go_to(11)
    assert lines() == ["refused {}", "again {}", "refused {}", "2 more such lines are left out {}"]


def test_lines_below_the_level_are_nothing(log: logging.Logger, lines: Callable[[], list[str]]) -> None:
    time = Time()
    throttle = Throttle(log, most=1, period_s=10, clock=time.clock, call_later=time.call_later)
    for _ in range(3):
        throttle.line(logging.DEBUG, "refused", kind={})
    time.go_to(10)
    assert lines() == []


def test_it_runs_by_the_event_loop(log: logging.Logger, lines: Callable[[], list[str]]) -> None:
    async def scenario() -> None:
        throttle = Throttle(log, most=1, period_s=0.01, clock=lambda: 0.0)  # both lines come in one period
        throttle.line(logging.INFO, "refused", kind={})
        throttle.line(logging.INFO, "refused", kind={})
        while len(made) < 2:
            await asyncio.sleep(0.001)
            made.extend(lines())

    made: list[str] = []
    asyncio.run(asyncio.wait_for(scenario(), PATIENCE_S))
    assert made == ["refused {}", "1 more such lines are left out {}"]
