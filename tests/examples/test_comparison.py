"""Shows that a speed-up is claimed only where the spread between blocks allows it."""

from __future__ import annotations

import numpy as np
import pytest

from examples.vlm.comparison import compare

Blocks = list[list[tuple[float, float]]]


def noisy(ratio: float, spread: float, seed: int = 0) -> Blocks:
    """Twelve blocks of five batches; what disturbs a block disturbs one way's half of it."""
    draw = np.random.default_rng(seed)
    disturbed = np.exp(spread * draw.normal(size=(12, 2)))
    return [
        [(100 * new * one, 100 * ratio * usual * other) for one, other in np.exp(0.01 * draw.normal(size=(5, 2)))]
        for new, usual in disturbed
    ]


def test_a_clear_difference_is_claimed() -> None:
    found = compare(noisy(1.2, 0.01))
    assert found.low < 1.2 < found.high
    assert found.high - found.low < 0.05
    assert "faster" in found.verdict
    assert compare(noisy(0.8, 0.01)).verdict.startswith("planned schedules are slower")


def test_a_difference_within_the_noise_is_not() -> None:
    verdicts = [compare(noisy(1.03, 0.15, seed)).verdict for seed in range(5)]
    assert sum("no difference that this spread supports" in verdict for verdict in verdicts) >= 4


def test_runs_that_are_alike_are_rarely_told_apart() -> None:
    claims = sum("no difference" not in compare(noisy(1.0, 0.1, seed)).verdict for seed in range(15))
    assert claims <= 3


def test_batches_of_a_block_do_not_count_as_independent() -> None:
    """The same numbers in one large block a half, or in small ones: the interval knows the difference."""
    small = noisy(1.1, 0.1, seed=2)
    large = [[pair for block in small[start : start + 6] for pair in block] for start in (0, 6)]
    assert compare(small).low != compare(large).low


def test_one_block_says_nothing() -> None:
    with pytest.raises(ValueError, match="at least 2"):
        compare(noisy(1.2, 0.1)[:1])
