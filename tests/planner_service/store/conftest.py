"""Every implementation of the store, empty, in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pytest
from serving import run

from planner_service.store import MemoryStore, PlanStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

KEPT = {"kept_iterations": 3, "kept_bytes": 1_000, "kept_closed_jobs": 2}


class InStore(Protocol):
    """Runs a scenario in an empty store that keeps little."""

    def __call__(self, scenario: Callable[[PlanStore], Awaitable[None]]) -> None: ...


@pytest.fixture(params=["memory"])
def in_store(request: pytest.FixtureRequest) -> InStore:
    """Return what runs a scenario, in an empty store of each kind."""
    assert request.param == "memory"
    return lambda scenario: _run(MemoryStore(**KEPT), scenario)


def _run(store: PlanStore, scenario: Callable[[PlanStore], Awaitable[None]]) -> None:
    async def started() -> None:
        await store.start(on_lost=lambda: pytest.fail("nothing was lost"))
        try:
            await scenario(store)
        finally:
            await store.close()

    run(started())
