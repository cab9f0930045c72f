"""Which forward may start on a rank, so that memory can never lock the order up.

The rule: on every rank, what a group of sub-microbatches needs in all plus what all later groups hold there never
exceeds the limit. Then the oldest unfinished group can always run to its end.
"""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_NOTHING = 1 << 62
"""What the least forward of a group keeps that has none; more than any limit."""


class Admission:
    """Forwards of one rank whose inputs are there, and the memory that decides which of them may start.

    A binary tree over the groups holds, for every range of them, what they hold, the most that one of them needs with
    what those after it in the range hold, and the least that one of their forwards keeps. So the first forward that
    may start is found in a time that grows with the logarithm of the number of groups.

    Parameters
    ----------
    room
        Bytes that activations may take; None: no limit.
    needs
        Bytes that each group keeps on this rank in all, the oldest first; each fits alone.
    """

    def __init__(self, room: int | None, needs: Sequence[int]) -> None:
        self._room = sum(needs) if room is None else room
        self._size = 1 << max(0, len(needs) - 1).bit_length()
        self._held = [0] * (2 * self._size)
        self._least = [_NOTHING] * (2 * self._size)
        self._peak = [0] * self._size + [*needs] + [0] * (self._size - len(needs))
        for node in range(self._size - 1, 0, -1):
            self._peak[node] = max(self._peak[2 * node], self._peak[2 * node + 1])
        self._offered: list[list[tuple[int, int]]] = [[] for _ in needs]

    def offer(self, group: int, cell: int, num_bytes: int) -> None:
        """Add a forward that could start now and keeps so many bytes."""
        insort(self._offered[group], (-cell, num_bytes))
        self._update_offers(group)

    def first(self) -> tuple[int, int] | None:
        """Oldest group that has a forward that may start, and the cell of its last such one; None where none may."""
        left_to_see = [(1, _NOTHING - 1, 0)]
        while left_to_see:
            node, limit, held_after = left_to_see.pop()
            if self._least[node] > limit:
                continue
            if node >= self._size:
                group = node - self._size
                return group, next(-place for place, num_bytes in self._offered[group] if num_bytes <= limit)
            older, newer = 2 * node, 2 * node + 1
            held_later = held_after + self._held[newer]
            left_to_see.append((newer, self._limited(limit, self._peak[older], held_later), held_after))
            left_to_see.append((older, limit, held_later))
        return None

    def admits(self, group: int, num_bytes: int) -> bool:
        """Whether a forward of a group that keeps so many bytes may start."""
        held, peak, node = 0, 0, group + self._size
        while node > 1:
            if node % 2:
                peak = max(peak, self._peak[node - 1] + held) if self._peak[node - 1] else peak
                held += self._held[node - 1]
            node //= 2
        return num_bytes <= self._limited(_NOTHING, peak, self._held[1] - held)

    def start(self, group: int, cell: int, num_bytes: int) -> None:
        """Take an offered forward out: from now on it holds its bytes."""
        self._offered[group].remove((-cell, num_bytes))
        self._held[group + self._size] += num_bytes
        self._update_offers(group)
        self._update_memory(group)

    def free(self, group: int, num_bytes: int) -> None:
        """Give back what a forward held: its group needs it no more."""
        self._held[group + self._size] -= num_bytes
        self._peak[group + self._size] -= num_bytes
        self._update_memory(group)

    def _limited(self, limit: int, peak: int, held_after: int) -> int:
        """Most that a forward may keep behind groups of this peak; those that need nothing any more do not limit it."""
        return min(limit, self._room - peak - held_after) if peak else limit

    def _update_offers(self, group: int) -> None:
        """Bring up to date what the least forward keeps of all ranges around a group."""
        least, node = self._least, group + self._size
        now = min([num_bytes for _, num_bytes in self._offered[group]], default=_NOTHING)
        while least[node] != now:
            least[node] = now
            node //= 2
            if not node:
                return
            now = min(least[2 * node], least[2 * node + 1])

    def _update_memory(self, group: int) -> None:
        """Bring up to date what all ranges around a group hold and need."""
        held, peak, node = self._held, self._peak, (group + self._size) // 2
        while node:
            older, newer = 2 * node, 2 * node + 1
            held_later = held[newer]
            held[node] = held[older] + held_later
            before = peak[older] + held_later if peak[older] else 0
            peak[node] = before if before > peak[newer] else peak[newer]
            node //= 2
