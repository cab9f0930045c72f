"""Places in a line that clients share: each client's first goes before anybody's second."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import TYPE_CHECKING

from planner_service.access import current_caller

if TYPE_CHECKING:
    from collections.abc import Iterator


class Places:
    """Counts what each client has in the line, waiting or being done. For use from one event loop."""

    def __init__(self) -> None:
        self._taken: Counter[str] = Counter()

    def taken(self) -> int:
        """How many the caller has there."""
        return self._taken[current_caller().name]

    @contextlib.contextmanager
    def place(self) -> Iterator[tuple[int, ...]]:
        """Put one more of the caller's there for the block; yields the order that it has (lower goes first)."""
        client = current_caller().name
        order = (self._taken[client],)
        self._taken[client] += 1
        try:
            yield order
        finally:
            self._taken[client] -= 1
            if not self._taken[client]:
                del self._taken[client]
