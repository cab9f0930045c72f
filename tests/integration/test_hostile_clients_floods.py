"""Shows that floods, silence and what is left unread harm nobody but the client they come from."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc.aio
import pytest
from integration.harness import PATIENT_PLANNER
from waiting import PATIENCE_S

from benchmarks.fuzzing.good_job import GoodJob
from benchmarks.hostile_clients.__main__ import guarded_planner
from benchmarks.hostile_clients.attacks import ATTACKS, Target
from benchmarks.planner_process import CHANNEL_OPTIONS
from planner_service import settings as names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.hostile_clients.__main__ import Metadata
    from benchmarks.planner_process import PlannerProcess

MOST_STREAMS = 300
COUNTS = {
    "streams": 2_000,
    "unread_answers": 400,
    "trickled_requests": 100,
    "oversized": 400,
    "silence": 120,
    "resets": 5_000,
    "unread_refusals": 3_000,
    "pings": 20_000,
    "unknown_tokens": 1_000,
}
MET = {
    "streams": {"OPEN": MOST_STREAMS, "RESOURCE_EXHAUSTED": COUNTS["streams"] - MOST_STREAMS},
    "oversized": {"RESOURCE_EXHAUSTED": COUNTS["oversized"]},
    "unknown_tokens": {"UNAUTHENTICATED": COUNTS["unknown_tokens"]},
}
"""What an attack must meet with, where it reads what it is told."""
MOST_MIB = {"trickled_requests": 17 * 16}
"""What the planner may take more than before: sixteen requests of 16 MiB that are received, and others' windows."""
USUAL_MIB = 96


class Site:
    """A planner, a client that means harm, and one that does not."""

    def __init__(self, planner: PlannerProcess, hostile: Metadata, good: Metadata) -> None:
        self.planner = planner
        self.target = Target(address=planner.address, metadata=hostile)
        self._good = good

    async def survives(self, name: str) -> dict[str, int]:
        """Serve the good client before, during and after an attack; return what that met with."""
        async with grpc.aio.insecure_channel(self.planner.address, options=CHANNEL_OPTIONS) as channel:
            good = GoodJob(channel, metadata=self._good)
            await good.start_anew(attempt=1 + list(ATTACKS).index(name))
            before = self.planner.resident_mib()
            async with ATTACKS[name](self.target, COUNTS[name]) as met:
                await good.plan_next()
                during = self.planner.resident_mib()
            await good.plan_next()
        assert during - before < MOST_MIB.get(name, USUAL_MIB)
        assert self.planner.resident_mib() - before < MOST_MIB.get(name, USUAL_MIB)
        return met


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with guarded_planner(PATIENT_PLANNER | {names.MAX_CLIENT_STREAMS: str(MOST_STREAMS)}) as (planner, hostile, good):
        yield Site(planner, hostile, good)


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_harms_nobody_else(site: Site, name: str) -> None:
    met = asyncio.run(asyncio.wait_for(site.survives(name), PATIENCE_S))
    assert met == MET.get(name, met)
    assert site.planner.is_serving()
    assert site.planner.troubles() == []
