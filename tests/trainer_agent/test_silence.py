"""A planner that takes calls and answers nothing: given up after some iterations and seconds, and then seldom again."""

from __future__ import annotations

from clocks import Clock

from trainer_agent.silence import Silence


def given_up(silence: Silence, iterations: int) -> list[int]:
    """Let iterations go without an answer; return those after which the planner is to be given up."""
    return [iteration for iteration in range(1, iterations + 1) if silence.missed()]


def test_some_iterations_in_a_row_are_too_many() -> None:
    silence = Silence(patience=3, least_s=0.0)
    silence.began()
    assert given_up(silence, 3) == [3]


def test_an_answer_starts_the_count_again() -> None:
    silence = Silence(patience=3, least_s=0.0)
    silence.began()
    assert given_up(silence, 2) == []
    silence.heard()
    assert given_up(silence, 3) == [3]


def test_the_next_change_takes_many_more_iterations_whoever_is_asked_by_then() -> None:
    silence = Silence(patience=3, again=16, least_s=0.0)
    silence.began()
    assert given_up(silence, 3) == [3]
    silence.ended()
    silence.began()
    assert given_up(silence, 40) == [16, 32]
    silence.heard()
    assert given_up(silence, 3) == [3]


def test_short_iterations_are_no_reason_before_some_seconds_are_over() -> None:
    clock = Clock()
    silence = Silence(patience=3, least_s=5.0, clock=clock)
    silence.began()
    clock.now_s += 4.9
    assert given_up(silence, 100) == []
    silence.heard()
    clock.now_s += 4.9
    assert given_up(silence, 100) == []
    clock.now_s += 0.2
    assert silence.missed()


def test_while_nobody_is_asked_nothing_is_counted() -> None:
    silence = Silence(patience=3, least_s=0.0)
    assert given_up(silence, 100) == []
    silence.began()
    assert given_up(silence, 2) == []
    silence.ended()
    assert given_up(silence, 100) == []
    silence.began()
    assert given_up(silence, 1) == [1]
