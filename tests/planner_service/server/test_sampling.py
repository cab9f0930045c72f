"""Shows that the store's metrics follow the store, and stay as they were while it is away."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from metric_samples import value
from serving import LONG_MS, run
from store_cases import add, claimant, record

from planner_service.server import sampling
from planner_service.store import MemoryStore, QueueState, StoreAwayError

if TYPE_CHECKING:
    import pytest


class Away(MemoryStore):
    """A store that is away when a test says so."""

    away = False
    refused = 0

    async def queue(self) -> QueueState:
        if self.away:
            self.refused += 1
            raise StoreAwayError("away")
        return await super().queue()


async def until(name: str, wanted: float) -> None:
    while value(name) != wanted:
        await asyncio.sleep(0.001)


def test_queue_is_followed_past_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "PERIOD_S", 0.001)

    async def scenario() -> None:
        store = Away()
        await store.put_job(record())
        looking = asyncio.create_task(sampling.sample_store(store))
        for iteration in range(4):
            await add(store, iteration)
        await store.claim(claimant(lease_ms=LONG_MS), [])
        await until("dip_queue_batches", 3)
        await until("dip_queue_claimed_batches", 1)
        store.away = True
        await add(store, 4)
        while store.refused < 3:
            await asyncio.sleep(0.001)
        assert value("dip_queue_batches") == 3
        store.away = False
        await until("dip_queue_batches", 4)
        assert value("dip_queue_oldest_age_seconds") > 0
        looking.cancel()

    run(scenario())
