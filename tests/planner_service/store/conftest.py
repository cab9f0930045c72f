"""Every implementation of the store, empty, in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pytest
from serving import run
from waiting import PATIENCE_S

from benchmarks.redis_server import RedisServer, server_programs
from planner_service.store import MemoryStore, PlanStore
from planner_service.store.redis_store import RedisStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

KEPT = {"kept_iterations": 3, "kept_bytes": 1_000, "kept_closed_jobs": 2}


class InStore(Protocol):
    """Runs a scenario in an empty store that keeps little."""

    def __call__(self, scenario: Callable[[PlanStore], Awaitable[None]]) -> None: ...


@pytest.fixture(scope="session", params=["memory", *server_programs()])
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer | None]:
    """Run each server that this machine has for all tests together; None: the store needs none."""
    if request.param == "memory":
        yield None
        return
    with RedisServer(program=server_programs()[request.param]) as running:
        yield running


@pytest.fixture
def in_store(server: RedisServer | None) -> InStore:
    """Return what runs a scenario, in an empty store of each kind."""
    if server is None:
        return lambda scenario: _run(MemoryStore(**KEPT), scenario)
    with server.client() as client:
        client.flushall()
    return lambda scenario: _run(RedisStore(server.url, timeout_s=PATIENCE_S, **KEPT), scenario)


def _run(store: PlanStore, scenario: Callable[[PlanStore], Awaitable[None]]) -> None:
    async def started() -> None:
        await store.start(on_lost=lambda: pytest.fail("nothing was lost"))
        try:
            await scenario(store)
        finally:
            await store.close()

    run(started())
