"""Delays between attempts: they double up to a bound, never all the same, never shorter than asked for."""

from __future__ import annotations

import random

import pytest

from trainer_agent.backoff import Backoff


class Extreme(random.Random):
    """Draws one end of every range."""

    def __init__(self, upper: bool) -> None:
        super().__init__(0)
        self.upper = upper

    def uniform(self, a: float, b: float) -> float:
        return b if self.upper else a


def test_delays_double_up_to_the_longest() -> None:
    backoff = Backoff(initial_s=0.1, maximum_s=1.0, rng=Extreme(upper=True))
    assert [backoff.next_delay_s() for _ in range(6)] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


def test_jitter_shortens_by_half_at_most() -> None:
    backoff = Backoff(initial_s=0.1, maximum_s=1.0, rng=Extreme(upper=False))
    assert [backoff.next_delay_s() for _ in range(5)] == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.5])


def test_two_ranks_do_not_come_back_together() -> None:
    one, other = (Backoff(rng=random.Random(seed)) for seed in (1, 2))
    assert all(one.next_delay_s() != other.next_delay_s() for _ in range(10))


def test_a_success_starts_again() -> None:
    backoff = Backoff(rng=Extreme(upper=True))
    first = backoff.next_delay_s()
    backoff.next_delay_s()
    backoff.reset()
    assert backoff.next_delay_s() == first


def test_the_planner_may_ask_for_more() -> None:
    assert Backoff().next_delay_s(at_least_s=7.5) == 7.5


def test_a_thousand_failures_overflow_nothing() -> None:
    backoff = Backoff(maximum_s=2.0)
    assert max(backoff.next_delay_s() for _ in range(2000)) <= 2.0


def test_bounds_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match=r"initial_s: 2\.0, maximum_s: 1\.0"):
        Backoff(initial_s=2.0, maximum_s=1.0)
