"""When each plan was stored and each schedule received, in memory that the processes of a benchmark share.

The clock is Linux's monotonic one, which all processes of a machine have in common.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


class Times:
    """Stamps of every iteration, in nanoseconds; 0 where nothing happened yet.

    Parameters
    ----------
    path
        The file that the processes map; made, all 0, by whoever is first.
    iterations, replicas, ranks
        How many there are.

    Attributes
    ----------
    stored
        (iterations, replicas): a plan goes into the store.
    received
        (iterations, replicas, ranks): a rank has its schedule.
    """

    def __init__(self, path: Path, *, iterations: int, replicas: int, ranks: int) -> None:
        shape = (iterations, replicas, 1 + ranks)
        made = path.exists()
        all_stamps: NDArray[np.int64] = np.memmap(path, dtype=np.int64, mode="r+" if made else "w+", shape=shape)
        self.path = path
        self.iterations = iterations
        self.stored: NDArray[np.int64] = all_stamps[:, :, 0]
        self.received: NDArray[np.int64] = all_stamps[:, :, 1:]

    def latencies_ms(self, first: int = 0, last: int | None = None) -> NDArray[np.float64]:
        """Milliseconds from stored to received of the iterations from `first` to before `last`, all ranks, flat."""
        stored, received = self.stored[first:last], self.received[first:last]
        if not (stored.all() and received.all()):
            missing = int((received == 0).sum())
            raise ValueError(f"iterations {first} to {last}: {missing} schedules of {received.size} were not received")
        return ((received - stored[:, :, None]) / 1e6).ravel()


def now_ns() -> int:
    """Read the clock that all processes of this machine share."""
    return time.monotonic_ns()
