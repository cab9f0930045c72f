"""Fallbacks are counted every time and said every now and then."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from trainer_agent.stats import SAID_EVERY_S, FallbackLog

if TYPE_CHECKING:
    import pytest


def test_the_first_is_said_at_once_and_the_rest_together(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 0.0
    log = FallbackLog(clock=lambda: now_s)
    with caplog.at_level(logging.WARNING):
        for iteration in range(100):
            log.note(iteration, "late")
        now_s = SAID_EVERY_S
        log.note(100, "away")
    assert log.count == 101
    assert log.last_reason == "away"
    assert [record.getMessage() for record in caplog.records] == [
        "iteration 0 ran the fixed fallback schedule: late",
        "iteration 100 ran the fixed fallback schedule: away (and 99 more since this was last said)",
    ]


def test_no_reason_begins_a_line_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        FallbackLog().note(0, "refused: module 'a\n2026-11-30 INFO all is well \x1b[2J'")
    (record,) = caplog.records
    assert record.getMessage().isprintable()


def test_a_quiet_one_only_counts(caplog: pytest.LogCaptureFixture) -> None:
    log = FallbackLog(quiet=True)
    log.note(3, "no planner")
    assert (log.count, log.last_reason) == (1, "no planner")
    assert not caplog.records
