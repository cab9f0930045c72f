"""A store that planners of one event loop share, and that fails or is slow when a test says so."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dip.planner.v1 import planner_pb2 as pb
from dip.planner.v1 import planner_pb2_grpc as pb_grpc
from serving import client, planner, submit

from planner_service.store import BatchKey, Claim, Claimant, JobRecord, MemoryStore, Outcome, ReplicaKey, Wait

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from planner_service.server.lifecycle import PlannerServer
    from planner_service.store import Added

DEAD = Claimant(name="dead", lease_ms=1, workers=1)


class SharedStore(MemoryStore):
    """A store that planners of one event loop share, and that fails when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.failing: dict[str, Exception] = {}
        self.failed: set[str] = set()
        self.settled: list[BatchKey] = []
        self.lost: list[Callable[[], None]] = []
        self.released = asyncio.Event()

    @property
    def shared(self) -> bool:
        return True

    async def start(self, on_lost: Callable[[], None], on_available: Callable[[bool], None] | None = None) -> None:
        self.lost.append(on_lost)
        await super().start(on_lost, on_available)
        self.on_available = on_available

    async def job(self, job_id: str) -> JobRecord | None:
        self._fail("job")
        return await super().job(job_id)

    async def settle(self, key: BatchKey, digest: bytes, outcome: Outcome) -> bool:
        self._fail("settle")
        stands = await super().settle(key, digest, outcome)
        if stands:
            self.settled.append(key)
        return stands

    async def add_batch(self, key: BatchKey, **how: Any) -> Added:
        self._fail("add_batch")
        return await super().add_batch(key, **how)

    def _fail(self, method: str) -> None:
        if method in self.failing:
            self.failed.add(method)
            raise self.failing[method]

    def lose_everything(self) -> None:
        """Begin empty, as a Redis does that was started again without its data."""
        watches, lost = self._watches, self.lost
        MemoryStore.__init__(self)
        self._watches = watches
        for on_lost in lost:
            on_lost()

    async def release(self, claimant: Claimant, held: Sequence[Claim]) -> None:
        await super().release(claimant, held)
        self.released.set()


class SlowStore(SharedStore):
    """A store whose answers come when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.slow = self.forgets = False
        self.claimed, self.answer, self.renewing = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.renewing.set()
        self.taken: list[Claim] = []

    async def job(self, job_id: str) -> JobRecord | None:
        record = await super().job(job_id)
        if self.forgets and record is not None:
            self._forget(job_id)
        return record

    async def add_batch(self, key: BatchKey, **how: Any) -> Added:
        added = await super().add_batch(key, **how)
        if self.slow:
            self.claimed.set()
            await self.answer.wait()
        return added

    async def claim(self, claimant: Claimant, held: Sequence[Claim]) -> Claim | Wait:
        found = await super().claim(claimant, held)
        if isinstance(found, Claim):
            self.taken.append(found)
        return found

    async def renew(self, claimant: Claimant, held: Sequence[Claim]) -> Sequence[Claim]:
        await self.renewing.wait()
        return await super().renew(claimant, held)


@contextlib.asynccontextmanager
async def planners(*settings: dict[str, Any]) -> AsyncIterator[tuple[SharedStore, list[PlannerServer]]]:
    """Serve planners with one worker each that share a store."""
    store = SharedStore()
    async with contextlib.AsyncExitStack() as stack:
        yield store, [await stack.enter_async_context(planner(store=store, **how)) for how in settings]


@contextlib.asynccontextmanager
async def clients(*servers: PlannerServer) -> AsyncIterator[list[pb_grpc.PlannerServiceAsyncStub]]:
    async with contextlib.AsyncExitStack() as stack:
        yield [await stack.enter_async_context(client(server)) for server in servers]


def key(iteration: int) -> BatchKey:
    return BatchKey(replica=ReplicaKey(job_id="job", attempt=1, replica=0), iteration=iteration)


async def die_over(store: SharedStore, iteration: int, times: int) -> None:
    """Let planners claim a batch and end without a word, so many."""
    for number in range(times):
        while not isinstance(claim := await store.claim(replace(DEAD, name=f"dead {number}"), []), Claim):
            await asyncio.sleep(0.001)
        assert claim.key.iteration == iteration


async def queued(store: SharedStore, iteration: int, claimant: Claimant | None = None) -> None:
    """Put a batch into the queue as a planner does that has no free worker, or claims it."""
    request = submit(iteration)
    part = pb.PlanRequest(batch=request.batch).SerializeToString()
    await store.add_batch(key(iteration), digest=b"digest", batch=part, limit=9, claimant=claimant)
