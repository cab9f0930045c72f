"""What two runs over the same batches say about their speed, and how sure that is."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

CONFIDENCE = 0.95
LEAST_BLOCKS = 6  # fewer cannot support any interval of this confidence: 2 / 2**5 is above 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """How many times as fast planned schedules are as the usual ones.

    Parameters
    ----------
    ratio
        (Time of the usual way) / (time of the new way): the Hodges-Lehmann estimate over the blocks.
    low, high
        95% interval of it; 0 and infinity where there are too few blocks.
    """

    ratio: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """What may be claimed."""
        if self.high == math.inf:
            return f"no claim: a 95% interval needs at least {LEAST_BLOCKS} blocks ({_percent(self.ratio)} in these)"
        interval = f"95% interval {_percent(self.low)} to {_percent(self.high)}"
        if self.low > 1:
            return f"planned schedules are {self.ratio - 1:.1%} faster ({interval})"
        if self.high < 1:
            return f"planned schedules are {1 - self.ratio:.1%} slower ({interval})"
        return f"no difference that this spread supports: {_percent(self.ratio)} ({interval})"


def compare(blocks: Sequence[Sequence[tuple[float, float]]]) -> Comparison:
    """Compare two runs.

    Batches of a block share what the machine did meanwhile, so a block counts once, with the median of its batches'
    ratios. The interval is that of the signed-rank test on their logarithms, exact whatever the noise is, as long as it
    meets both runs alike (Hollander, Wolfe and Chicken 2014, section 3.3).

    Parameters
    ----------
    blocks
        For each block the times of its batches: (new way, usual way), in any unit.

    Raises
    ------
    ValueError
        If there is no block.
    """
    if not blocks:
        raise ValueError("blocks: none; at least 1 is needed")
    logs = [statistics.median(math.log(usual / new) for new, usual in block) for block in blocks]
    walsh = sorted((one + other) / 2 for one, other in combinations_with_replacement(logs, 2))
    ratio = math.exp(statistics.median(walsh))
    left_out = _left_out(len(logs))
    if left_out is None:
        return Comparison(ratio=ratio, low=0.0, high=math.inf)
    return Comparison(ratio=ratio, low=math.exp(walsh[left_out]), high=math.exp(walsh[-1 - left_out]))


def _left_out(blocks: int) -> int | None:
    """How many of the sorted Walsh averages lie outside the interval at each end; None where there is no interval.

    The largest c with P(T <= c) <= 2.5%, T the sum of those ranks 1..n whose sign is positive, all signs alike.
    """
    ways = [1]
    for rank in range(1, blocks + 1):
        longer = ways + [0] * rank
        for total, count in enumerate(ways):
            longer[total + rank] += count
        ways = longer
    tail, found = 0, None
    for total, count in enumerate(ways):
        tail += count
        if tail > (1 - CONFIDENCE) / 2 * 2**blocks:
            return found
        found = total
    return found


def _percent(ratio: float) -> str:
    return f"{ratio - 1:+.1%}"
