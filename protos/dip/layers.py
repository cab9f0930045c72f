"""How many layers of each module each rank gets: busy alike, within their memory; layers of a module count alike."""

from __future__ import annotations

from collections import Counter
from heapq import heapify, heapreplace
from itertools import product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dip.job import Job

MOST_MOVES = 1000
"""Layers that are moved at most after the first sharing: an end in any case."""

Move = tuple[tuple[int, int, int], ...]
"""Layers that change places together: (module, from rank, to rank)."""


def share_layers(
    job: Job, times_us: Sequence[float], slots: Sequence[Sequence[int]], busy_us: Sequence[float] = ()
) -> tuple[list[list[int]], list[list[int]]]:
    """Share the layers of all modules among ranks.

    Modules are shared out from the longest to the shortest; each gives its layers one by one to the rank that has
    least to do, counted in time at the rank's speed, and room for their static bytes. Then layers move between ranks,
    or are exchanged for those of another module, as long as that lets ranks hold what they cannot or the busiest rank
    do less.

    Parameters
    ----------
    job
        The job.
    times_us
        Time of all layers of each module.
    slots
        For each module, the places of its chunks; see :func:`dip.partition.cut`.
    busy_us
        For each rank what counts as busy beforehand; empty: nothing.

    Returns
    -------
    list, list
        For each module: the rank of each chunk; how many layers of average time each chunk has, at least one.
    """
    sharing = _Sharing(job, times_us, busy_us)
    # A module with fewer places than ranks leaves ranks out: it goes last, to where there is least to do.
    order = sorted(range(len(slots)), key=lambda m: (len(set(slots[m])) < job.ranks, -times_us[m]))
    placed: dict[int, list[int]] = {}
    for m in order:
        placed[m] = sharing.place(m, slots[m])
    sharing.improve()
    ranks = [placed[m] for m in range(len(slots))]
    return ranks, [sharing.chunks(m, of_module) for m, of_module in enumerate(ranks)]


class _Sharing:
    """Layers of each module on each rank, with what ranks have to do and hold; all layers of a module are alike."""

    def __init__(self, job: Job, times_us: Sequence[float], busy_us: Sequence[float]) -> None:
        self.job = job
        self.layer_us = [time / module.num_layers for time, module in zip(times_us, job.modules, strict=True)]
        self.layer_bytes = [m.static_bytes(0, m.num_layers) / m.num_layers for m in job.modules]
        self.busy = list(busy_us) or [0.0] * job.ranks
        self.held = [0.0] * job.ranks
        self.counts: list[list[int]] = [[0] * job.ranks for _ in job.modules]
        self.least: list[list[int]] = [[0] * job.ranks for _ in job.modules]

    def place(self, m: int, slots: Sequence[int]) -> list[int]:
        """Share out one module; returns the ranks of its chunks."""
        width = len(set(slots))
        if width < self.job.ranks:
            free = sorted(range(self.job.ranks), key=lambda r: (self._excess(r, self.layer_bytes[m]), self.busy[r], r))
            there = dict(zip(sorted(set(slots)), sorted(free[:width]), strict=True))
            slots = [there[slot] for slot in slots]
        for rank, many in Counter(slots).items():
            self.least[m][rank] = many
            self._add(m, rank, many)
        ready = [self._after(m, rank) for rank in set(slots)]
        heapify(ready)
        for _ in range(self.job.modules[m].num_layers - len(slots)):
            rank = ready[0][-1]
            self._add(m, rank, 1)
            heapreplace(ready, self._after(m, rank))
        return list(slots)

    def _after(self, m: int, rank: int) -> tuple[bool, float, float, int]:
        """How little a rank should get one more layer of a module."""
        full = self._excess(rank, self.layer_bytes[m]) > 0
        share = self.counts[m][rank] / self.least[m][rank]
        return full, self.busy[rank] + self.layer_us[m] / self.job.speed[rank], share, rank

    def _add(self, m: int, rank: int, many: int) -> None:
        self.counts[m][rank] += many
        self.busy[rank] += many * self.layer_us[m] / self.job.speed[rank]
        self.held[rank] += many * self.layer_bytes[m]

    def _excess(self, rank: int, more: float = 0.0) -> float:
        """Bytes that a rank lacks."""
        limit = self.job.memory_bytes[rank]
        return max(0.0, self.held[rank] + more - limit) if limit else 0.0

    def improve(self) -> None:
        """Move or exchange layers of the rank that lacks most memory, else of the busiest, while that helps."""
        for _ in range(MOST_MOVES):
            worst = max(range(self.job.ranks), key=lambda r: (self._excess(r), self.busy[r]))
            now = self._excess(worst), self.busy[worst]
            for moves in (self._moves(worst), self._exchanges(worst)):
                worth, best = min(((self._worth(move), move) for move in moves), default=((*now, 0.0), ()))
                if _is_less(worth[:2], now):
                    break
            else:
                return
            for m, there, here in best:
                self._add(m, there, -1)
                self._add(m, here, 1)

    def _moves(self, rank: int) -> Iterator[Move]:
        """Single layers off a rank."""
        for m, other in product(range(len(self.counts)), range(self.job.ranks)):
            if other != rank and self.counts[m][rank] > self.least[m][rank] and self.least[m][other]:
                yield ((m, rank, other),)

    def _exchanges(self, rank: int) -> Iterator[Move]:
        """Layers off a rank, each for one of another module."""
        for (move,), k in product(list(self._moves(rank)), range(len(self.counts))):
            m, _, other = move
            if k != m and self.least[k][rank] and self.counts[k][other] > self.least[k][other]:
                yield move, (k, other, rank)

    def _worth(self, move: Move) -> tuple[float, float, float]:
        """Bytes lacking and time of the worse of two ranks after a move; then time of the other one."""
        _, rank, other = move[0]
        for m, there, here in move:
            self._add(m, there, -1)
            self._add(m, here, 1)
        excess = max(self._excess(rank), self._excess(other))
        busy = max(self.busy[rank], self.busy[other]), min(self.busy[rank], self.busy[other])
        for m, there, here in move:
            self._add(m, here, -1)
            self._add(m, there, 1)
        return excess, *busy

    def chunks(self, m: int, ranks: Sequence[int]) -> list[int]:
        """Layers of each chunk of a module: those of a rank shared evenly among its chunks there, more to the first."""
        seen: Counter[int] = Counter()
        made = []
        for rank in ranks:
            whole, rest = divmod(self.counts[m][rank], self.least[m][rank])
            made.append(whole + (seen[rank] < rest))
            seen[rank] += 1
        return made


def _is_less(new: tuple[float, float], old: tuple[float, float]) -> bool:
    """Whether a pair of bytes and time is less, by more than rounding in time."""
    return new[0] < old[0] or (new[0] == old[0] and new[1] < old[1] * (1 - 1e-9))
