"""What two runs over the same batches say about their speed, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

RESAMPLES = 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """How many times as fast one run is as the other.

    Parameters
    ----------
    ratio
        Median over the batches of (time of the slower, usual way) / (time of the new way).
    low, high
        95% interval of it. Batches of a block share what the machine did meanwhile, so whole blocks are drawn again
        (cluster bootstrap; Davison and Hinkley 1997, section 3.8).
    """

    ratio: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """What may be claimed."""
        interval = f"95% interval {_percent(self.low)} to {_percent(self.high)}"
        if self.low > 1:
            return f"planned schedules are {_percent(self.ratio)} faster ({interval})"
        if self.high < 1:
            return f"planned schedules are slower: {_percent(self.ratio)} ({interval})"
        return f"no difference that this spread supports: {_percent(self.ratio)} ({interval})"


def compare(blocks: Sequence[Sequence[tuple[float, float]]], *, seed: int = 0) -> Comparison:
    """Compare two runs.

    Parameters
    ----------
    blocks
        For each block the times of its batches: (new way, usual way), in any unit.
    seed
        Of the resampling.

    Raises
    ------
    ValueError
        If there are fewer than two blocks: nothing could be said about the spread.
    """
    if len(blocks) < 2:
        raise ValueError(f"blocks: {len(blocks)}; at least 2 are needed to say anything about the spread")
    ratios = [np.array([usual / new for new, usual in block]) for block in blocks]
    draw = np.random.default_rng(seed)
    medians = [
        float(np.median(np.concatenate([ratios[i] for i in draw.integers(len(ratios), size=len(ratios))])))
        for _ in range(RESAMPLES)
    ]
    low, high = np.percentile(medians, [2.5, 97.5])
    return Comparison(ratio=float(np.median(np.concatenate(ratios))), low=float(low), high=float(high))


def _percent(ratio: float) -> str:
    return f"{ratio - 1:+.1%}"
