"""Stores in real Redis servers, for tests."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING, Any

import pytest
from waiting import PATIENCE_S

from benchmarks.redis_server import RedisServer, server_programs
from planner_service.store.redis_store import RedisStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

# With CI=true a missing server is no reason: then these tests fail.
needs_redis = pytest.mark.skipif(
    not server_programs() and not os.environ.get("CI"), reason="no Redis server on this machine"
)


def nothing() -> None:
    """Be told that the store was lost, and not mind."""


class NotedStore(RedisStore):
    """A store that notes whether it said last that it answers."""

    available = False

    def note(self, answers: bool) -> None:
        self.available = answers


@contextlib.asynccontextmanager
async def redis_store(
    server: RedisServer, *, on_lost: Callable[[], None] = nothing, **options: Any
) -> AsyncIterator[NotedStore]:
    """Open a store in a server until the block ends; unless told otherwise it is as patient with it as a test."""
    store = NotedStore(server.url, **{"timeout_s": PATIENCE_S, **options})
    await store.start(on_lost, store.note)
    try:
        yield store
    finally:
        await store.close()


@contextlib.contextmanager
def keys_of(server: RedisServer) -> Iterator[dict[str, int]]:
    """Yield the names of all keys in a server, each with the milliseconds that it has to live (-1: for ever)."""
    with server.client() as client:
        yield {key.decode(): client.pttl(key) for key in client.scan_iter(count=1000)}


def empty(server: RedisServer) -> None:
    """Delete all that a server holds; its scripts stay."""
    with server.client() as client:
        client.flushall()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what other tasks and processes bring about."""
    while not condition():
        await asyncio.sleep(0.01)
