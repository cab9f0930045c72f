"""Turns of each client: what one asks for at once waits behind its own, and behind nobody else's."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@dataclass(slots=True)
class _Client:
    """Who has a turn, or waits for one."""

    free: asyncio.Semaphore
    users: int = field(default=0)


class Turns:
    """Lets each client do a thing so many times at once. For use from one event loop.

    Parameters
    ----------
    most
        How many times; one more waits, the first to come first.
    """

    def __init__(self, *, most: int) -> None:
        self._most = most
        self._clients: dict[str, _Client] = {}

    def __len__(self) -> int:
        """Clients that have a turn or wait for one."""
        return len(self._clients)

    @contextlib.asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        """Wait for a turn of this client, and have it for the block."""
        entry = self._clients.setdefault(client, _Client(asyncio.Semaphore(self._most)))
        entry.users += 1
        try:
            async with entry.free:
                yield
        finally:
            entry.users -= 1
            if not entry.users:
                del self._clients[client]
