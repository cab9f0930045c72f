"""Shows that a speed-up is claimed only where the spread between blocks allows it."""

from __future__ import annotations

import math

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
    assert " slower (" in compare(noisy(0.8, 0.01)).verdict


def test_a_difference_within_the_noise_is_not() -> None:
    verdicts = [compare(noisy(1.03, 0.15, seed)).verdict for seed in range(50)]
    assert sum("no difference that this spread supports" in verdict for verdict in verdicts) >= 40


def test_runs_that_are_alike_are_rarely_told_apart() -> None:
    claims = sum("no difference" not in compare(noisy(1.0, 0.1, seed)).verdict for seed in range(400))
    assert claims <= 0.08 * 400


def test_the_interval_is_that_of_the_signed_rank_test() -> None:
    """For 6, 8 and 12 pairs the tables leave out 0, 3 and 13 of the Walsh averages at each end."""
    for number, left_out in ((6, 0), (8, 3), (12, 13)):
        logs = [0.01 * position**2 for position in range(number)]
        walsh = sorted((a + b) / 2 for i, a in enumerate(logs) for b in logs[i:])
        found = compare([[(1.0, math.exp(value))] for value in logs])
        assert math.log(found.low) == pytest.approx(walsh[left_out])
        assert math.log(found.high) == pytest.approx(walsh[-1 - left_out])


def test_batches_of_a_block_do_not_count_as_independent() -> None:
    blocks = noisy(1.1, 0.1, seed=2)
    doubled = [[*block, *block] for block in blocks]
    assert compare(doubled) == compare(blocks)


def test_a_block_that_something_disturbed_does_not_decide() -> None:
    blocks = noisy(1.2, 0.01)
    disturbed = [[(10 * new, usual) for new, usual in blocks[0]], *blocks[1:]]
    assert compare(disturbed).low > 1.1


def test_few_blocks_support_no_claim() -> None:
    assert "at least 6 blocks" in compare(noisy(1.5, 0.01)[:5]).verdict
    assert "faster" in compare(noisy(1.5, 0.01)[:6]).verdict
    with pytest.raises(ValueError, match="at least 1"):
        compare([])
