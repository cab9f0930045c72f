"""Budgets: by the clock, or by schedules tried; the clock is handed in."""

from __future__ import annotations

import pytest

from planner_service.search.stopping import Stopping


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_by_time() -> None:
    clock = Clock()
    stopping = Stopping(seconds=4.0, clock=clock)
    assert (stopping.by_time, stopping.progress(), stopping.left_s(), stopping.elapsed_ms()) == (True, 0.0, 4.0, 0)
    clock.now += 1.0
    stopping.count(1000)
    assert (stopping.progress(), stopping.left_s(), stopping.elapsed_ms()) == (0.25, 3.0, 1000)
    assert stopping.spent(0.25)
    assert not stopping.spent()
    clock.now += 9.0
    assert stopping.spent()
    assert stopping.left_s() == 0.0
    assert stopping.left_evaluations() == float("inf")


def test_by_evaluations_the_clock_does_not_count() -> None:
    clock = Clock()
    stopping = Stopping(seconds=0.001, max_evaluations=10, clock=clock)
    clock.now += 1e6
    assert not stopping.by_time
    assert not stopping.spent()
    assert stopping.left_s() == float("inf")
    stopping.count(4)
    assert stopping.progress() == 0.4
    assert stopping.left_evaluations() == 6
    stopping.count(6)
    assert stopping.spent()


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_no_time_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match=f"seconds is {seconds}; allowed is more than 0"):
        Stopping(seconds=seconds)


def test_a_negative_number_of_evaluations_is_refused() -> None:
    with pytest.raises(ValueError, match="max_evaluations is -1; allowed are 0 and more"):
        Stopping(seconds=1.0, max_evaluations=-1)
