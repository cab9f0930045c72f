"""Who in this process waits for changes of the store."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

    from planner_service.store.records import ReplicaKey


class Watches:
    """The watches on replicas and on the queue. For use from one event loop."""

    def __init__(self) -> None:
        self._watches: defaultdict[ReplicaKey | None, set[EventWatch]] = defaultdict(set)

    def watch(self, replica: ReplicaKey) -> EventWatch:
        """Make a watch on one replica of one attempt."""
        return EventWatch(self._watches, replica)

    def watch_queue(self) -> EventWatch:
        """Make a watch on what waits to be claimed."""
        return EventWatch(self._watches, None)

    def wake(self, replica: ReplicaKey) -> None:
        """Wake the watches on one replica of one attempt."""
        self._wake(replica)

    def wake_job(self, job_id: str) -> None:
        """Wake the watches on every replica and attempt of a job."""
        for key in [key for key in self._watches if key is not None and key.job_id == job_id]:
            self._wake(key)

    def wake_queue(self) -> None:
        """Wake the watches on the queue."""
        self._wake(None)

    def wake_all(self) -> None:
        """Wake every watch: anything may have changed."""
        for key in list(self._watches):
            self._wake(key)

    def _wake(self, key: ReplicaKey | None) -> None:
        for watch in self._watches.get(key, ()):
            watch.wake()


class EventWatch:
    """One watch; see `protocol.Watch`."""

    def __init__(self, watches: defaultdict[ReplicaKey | None, set[EventWatch]], key: ReplicaKey | None) -> None:
        self._watches = watches
        self._key = key
        self._event = asyncio.Event()

    async def changed(self) -> None:
        """Wait for a change, or for `wake`."""
        await self._event.wait()
        self._event.clear()

    def wake(self) -> None:
        """Let the holder look again."""
        self._event.set()

    def __enter__(self) -> EventWatch:
        self._watches[self._key].add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        watches = self._watches[self._key]
        watches.discard(self)
        if not watches:
            del self._watches[self._key]
