"""A good choice of memory ways in a fixed order, at once: what the integer program starts from.

All pairs of a rank store at first. While some peak holds too much, the pair that adds least time for each byte that it
frees at such peaks takes a leaner way; then pairs take back what the peaks have room for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from planner_service.compiling import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


@kernel
def cover(first: Ints, last: Ints, time: Ints, kept: Ints, room: int) -> Ints:
    """Choose a way for each pair.

    Parameters
    ----------
    first, last
        [pairs] Peaks at which each pair is held: ``first`` to ``last - 1``.
    time, kept
        [pairs, candidates] What each way takes and keeps, from the one that keeps most on.
    room
        Bytes that may be held at any peak.

    Returns
    -------
    ndarray
        [pairs] Ways by index; the first is -1 where no choice fits.
    """
    pairs, candidates = time.shape
    chosen = np.zeros(pairs, dtype=np.int64)
    held = np.zeros(last.max() if pairs else 0, dtype=np.int64)
    for i in range(pairs):
        held[first[i] : last[i]] += kept[i, 0]
    above = np.zeros(held.shape[0] + 1, dtype=np.int64)
    while True:
        for p in range(held.shape[0]):
            above[p + 1] = above[p] + (held[p] > room)
        if above[held.shape[0]] == 0:
            break
        best, best_way, least = -1, 0, np.inf
        for i in range(pairs):
            crowded = above[last[i]] - above[first[i]]
            for k in range(chosen[i] + 1, candidates if crowded else 0):
                freed = kept[i, chosen[i]] - kept[i, k]
                if freed > 0 and time[i, k] - time[i, chosen[i]] < least * freed * crowded:
                    best, best_way = i, k
                    least = (time[i, k] - time[i, chosen[i]]) / (freed * crowded)
        if best < 0:
            chosen[0] = -1
            return chosen
        held[first[best] : last[best]] -= kept[best, chosen[best]] - kept[best, best_way]
        chosen[best] = best_way
    _take_back(first, last, time, kept, room, chosen, held)
    return chosen


@kernel
def _take_back(first: Ints, last: Ints, time: Ints, kept: Ints, room: int, chosen: Ints, held: Ints) -> None:
    """Let pairs keep more where it fits, those that save most time first."""
    saved = np.empty(chosen.shape[0], dtype=np.int64)
    for i in range(chosen.shape[0]):
        saved[i] = time[i, 0] - time[i, chosen[i]]
    for i in np.argsort(saved):
        spare = room
        for p in range(first[i], last[i]):
            spare = min(spare, room - held[p])
        for k in range(chosen[i]):
            more = kept[i, k] - kept[i, chosen[i]]
            if more <= spare and time[i, k] <= time[i, chosen[i]]:
                held[first[i] : last[i]] += more
                chosen[i] = k
                break
