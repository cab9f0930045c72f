"""What something took: on the clock, and of all cores together."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class Spent(NamedTuple):
    """Time that something took, in milliseconds.

    Parameters
    ----------
    cpu_ms
        Of all threads of this process.
    wall_ms
        On the clock.
    """

    cpu_ms: int
    wall_ms: int

    @property
    def on_one_core_ms(self) -> int:
        """Time in which one core does as much: the CPU time, or the time itself where cores had other work too."""
        return max(self.cpu_ms, self.wall_ms)


def spend(make: Callable[[], T]) -> tuple[T, Spent]:
    """Call, and measure it."""
    cpu, wall = time.process_time(), time.perf_counter()
    made = make()
    return made, Spent(round(1e3 * (time.process_time() - cpu)), round(1e3 * (time.perf_counter() - wall)))
