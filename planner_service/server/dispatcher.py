"""Keeps this planner's workers busy with what waits in the store, which other planners may share.

A batch is claimed when a worker is free for it, and no sooner: what one planner cannot begin at once is there for the
others. A claim is a lease. Whoever ends without an outcome loses it, whoever is slower than another finds the outcome
there, and the store takes the first outcome of a batch alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import uuid
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from planner_service.loops import start_loop
from planner_service.server.claimed import ClaimedBatch, Means
from planner_service.store import Claim, Claimant, StoreError, Wait

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from planner_service.store import BatchKey, ReplicaKey, Watch

RENEWALS_PER_LEASE: Final = 3
_RETRY_S: Final = 1.0
"""How soon a store that failed is asked again, if it does not say before that it is back."""
_MOST_OWN_JOBS: Final = 1024
"""Jobs end at other planners, too, and nobody tells."""

_log = logging.getLogger(__name__)


class Dispatcher:
    """Claims, has planned, and keeps leases alive. For use from one event loop.

    Parameters
    ----------
    means
        What batches are planned with.
    name
        This planner's, unlike any other's and that of an earlier start.
    lease_ms
        How long the others wait for a planner that says nothing.
    own_jobs
        Whether only batches of jobs are claimed whose trainers talk to this planner (`serves`).
    """

    def __init__(self, means: Means, *, name: str, lease_ms: int, own_jobs: bool) -> None:
        self._means = means
        self._store = means.store
        self._pool = means.pool
        self._name = name
        self._lease_ms = lease_ms
        # The job that was served last comes last.
        self._own_jobs: OrderedDict[str, None] | None = OrderedDict() if own_jobs else None
        self._claimed: dict[tuple[BatchKey, bytes], ClaimedBatch] = {}
        self._reserved = 0
        self._closing = False
        self._room = asyncio.Event()
        self._queue: Watch = means.store.watch_queue()
        self._loops: list[asyncio.Task[None]] = []
        means.pool.on_idle(self._room.set)

    def start(self) -> None:
        """Begin to claim."""
        loops = {"dispatch": self._dispatch(), "renew": self._renew()}
        self._loops = [start_loop(loop, name) for name, loop in loops.items()]

    async def close(self) -> None:
        """Claim nothing more and give back what has no outcome yet.

        Claims that are under way are waited for, which the store bounds: nobody else would know of them before their
        leases end.
        """
        self._closing = True
        while self._reserved:
            self._room.clear()
            await self._room.wait()
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        held = self._held()
        for batch in list(self._claimed.values()):
            batch.abandon()
        await asyncio.gather(*(batch.task for batch in list(self._claimed.values())), return_exceptions=True)
        try:
            await self._store.release(self._claimant(), held)
        except StoreError as error:
            _log.warning("claims are not given back, others wait for their leases to end: %s", error)

    def serves(self, job_id: str) -> None:
        """Note that trainers of a job talk to this planner."""
        if self._own_jobs is None:
            return
        if job_id not in self._own_jobs:
            self._own_jobs[job_id] = None
            self._queue.wake()
        self._own_jobs.move_to_end(job_id)
        if len(self._own_jobs) > _MOST_OWN_JOBS:
            self._own_jobs.popitem(last=False)

    @contextlib.contextmanager
    def claiming(self) -> Iterator[Claimant | None]:
        """Reserve a free worker for a batch that is just being added; None where none is free."""
        if not self._has_room():
            yield None
            return
        self._reserved += 1
        try:
            yield self._claimant()
        finally:
            self._reserved -= 1
            self._room.set()

    def take(self, claim: Claim) -> None:
        """Have a claimed batch planned; one that is being planned here goes on under the new claim."""
        what = claim.key, claim.digest
        batch = self._claimed.get(what)
        if batch is not None and not batch.unwanted and not batch.task.done():
            batch.claim = claim
            return
        batch = self._claimed[what] = ClaimedBatch(claim, self._means)

        def over(_: asyncio.Task[None]) -> None:
            if self._claimed.get(what) is batch:
                del self._claimed[what]
            self._room.set()

        batch.task.add_done_callback(over)

    def withdraw(self, replica: ReplicaKey, iteration: int) -> None:
        """Let go of what nobody will run: a replica's batches up to an iteration."""
        for batch in list(self._claimed.values()):
            if batch.claim.key.replica == replica and batch.claim.key.iteration <= iteration:
                batch.withdraw()

    def end(self, job_id: str, current: int | None) -> None:
        """Cancel every solve of a job whose attempt is over: of all but the current one, of all where there is none."""
        if current is None and self._own_jobs is not None:
            self._own_jobs.pop(job_id, None)
        for batch in list(self._claimed.values()):
            replica = batch.claim.key.replica
            if replica.job_id == job_id and replica.attempt != current:
                batch.cancel()

    def _held(self) -> list[Claim]:
        return [batch.claim for batch in self._claimed.values()]

    def _claimant(self) -> Claimant:
        return Claimant(
            name=self._name,
            lease_ms=self._lease_ms,
            workers=self._pool.workers,
            jobs=None if self._own_jobs is None else frozenset(self._own_jobs),
        )

    def _has_room(self) -> bool:
        """Whether a batch that is claimed now is begun now, or takes its turn with what others wait for.

        Calls and registrations are for this planner's workers alone; where they keep these busy, batches that stand in
        the store would never see one idle. Where workers never start, a store of our own is emptied all the same, so
        that each batch gets its reason; one that is shared is left to planners that work.
        """
        if self._closing:
            return False
        beginning = sum(not batch.begun for batch in self._claimed.values())
        if self._pool.idle > self._reserved + beginning:
            return True
        if self._pool.waiting and len(self._claimed) + self._reserved < self._pool.workers:
            return True
        return self._pool.broken and not self._store.shared

    async def _dispatch(self) -> None:
        with self._queue as queue:
            while True:
                while not self._has_room():
                    self._room.clear()
                    await self._room.wait()
                found = await self._claim()
                if isinstance(found, Claim):
                    self.take(found)
                else:
                    await _change(queue, found)

    async def _claim(self) -> Claim | Wait:
        self._reserved += 1
        try:
            return await self._store.claim(self._claimant(), self._held())
        except StoreError as error:
            _log.debug("nothing is claimed: %s", error)
            return Wait(lease_ends_ms=int(_RETRY_S * 1000))
        finally:
            self._reserved -= 1
            self._room.set()

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._lease_ms / 1000 / RENEWALS_PER_LEASE)
            try:
                lost: Sequence[Claim] = await self._store.renew(self._claimant(), self._held())
            except StoreError as error:
                _log.debug("leases are not renewed: %s", error)
                continue
            for claim in lost:
                batch = self._claimed.get((claim.key, claim.digest))
                if batch is not None and batch.claim is claim:
                    batch.withdraw()
            if lost:
                self._queue.wake()  # others may hold them now: their leases have to be looked after from here, too


def unique_name() -> str:
    """Name of this start of this planner: where it runs, and what no other start has."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:12]}"


async def _change(queue: Watch, wait: Wait) -> None:
    """Wait until something else may be claimed."""
    limit_s = None if wait.lease_ends_ms is None else (wait.lease_ends_ms + 1) / 1000
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            await queue.changed()
