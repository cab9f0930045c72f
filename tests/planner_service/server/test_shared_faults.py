"""Shows that each accepted batch comes to one outcome for all streams, however planners and what joins them break.

Planners without gRPC and processes, so that hundreds of batches and dozens of faults pass in a few seconds; the store,
its connections and the server are real.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from dip.planner.v1 import planner_pb2 as pb
from redis_cases import keys_of, needs_redis
from scripted_engine import even_partition
from serving import register, run, stream, submit

from benchmarks.faults.network import Network
from benchmarks.redis_server import RedisServer
from planner_service.pool import Failed, Planned, PlanTask
from planner_service.pool.messages import SplitPlan
from planner_service.pool.queue import SolveQueue
from planner_service.pool.solve import Solve
from planner_service.server.refusals import RefusalError, unavailable
from planner_service.server.servicer import PlannerServicer
from planner_service.settings import Settings
from planner_service.store import StoreError
from planner_service.store.redis_store import RedisStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from planner_service.store import Claim, Claimant

RANKS, REPLICAS, JOBS = 2, 2, ("a", "b:c@d+e=.-_")
FAULTS, BURST = 10, 5
LEASE_MS, TIMEOUT_S = 500, 0.4


pytestmark = needs_redis


class Solvers:
    """A pool whose workers sleep for a while, in the test's event loop; no two of their plans are alike."""

    def __init__(self, dice: random.Random, workers: int) -> None:
        self.workers, self.broken, self._dice = workers, False, dice
        self._queue = SolveQueue()
        self._unfinished: set[Solve] = set()
        self._busy: list[asyncio.Task[None]] = []

    @property
    def idle(self) -> int:
        return self._queue.num_getters

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def on_idle(self, listener: Callable[[], None]) -> None:
        self._queue.on_getter(listener)

    def start(self) -> None:
        self._busy = [asyncio.create_task(self._work()) for _ in range(self.workers)]

    def submit(self, task: PlanTask, **how: Any) -> Solve:
        solve = Solve(task, **how)
        self._unfinished.add(solve)
        solve.on_result(self._unfinished.discard)
        self._queue.put(solve)
        return solve

    def drain(self) -> None:
        for busy in self._busy:
            busy.cancel()
        for solve in list(self._unfinished):
            solve.cancel()

    async def _work(self) -> None:
        while True:
            solve = await self._queue.get()
            await asyncio.sleep(self._dice.choice([0, 0.01, 0.03, 0.2]))
            solve.resolve(self._made(solve.task) if self._dice.random() > 0.05 else Failed(reason="as scripted"))

    def _made(self, task: Any) -> Planned:
        schedule = pb.StreamedSchedule(makespan_us=self._dice.getrandbits(40))
        part = pb.StreamSchedulesResponse(iteration=task.iteration, schedule=schedule).SerializeToString()
        plan = SplitPlan(answer=b"", responses=(part,) * RANKS, makespan_us=1_000, fallback=False)
        return Planned(plan=plan, elapsed_ms=1)


class MortalStore(RedisStore):
    """A store of a planner that may die without giving back what it holds."""

    dead = False

    async def release(self, claimant: Claimant, held: Sequence[Claim]) -> None:
        if not self.dead:
            await super().release(claimant, held)


class Planner:
    """A planner on a network of its own."""

    def __init__(self, server: RedisServer, dice: random.Random, *, own: bool) -> None:
        self.network = Network(server.port)
        self.solvers = Solvers(dice, workers=dice.choice([1, 3]))
        self.own = own
        self.up = False
        self._calls: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self.network.__enter__()
        self.store = MortalStore(
            f"redis://127.0.0.1:{self.network.port}/0", timeout_s=TIMEOUT_S, kept_iterations=10_000
        )
        settings = Settings(lease_ms=LEASE_MS, plan_jobs="own" if self.own else "all", max_queued_batches=10_000)
        pool: Any = self.solvers
        self.servicer = PlannerServicer(self.store, pool, settings)
        await self.store.start(self.servicer.on_store_lost)
        self.solvers.start()
        self.servicer.start()
        self.up = True

    async def call(self, name: str, request: Any, context: Any = None) -> None:
        call = asyncio.create_task(getattr(self.servicer, name)(request, context))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        try:
            await asyncio.wait([call])
        finally:
            call.cancel()
        if call.cancelled():
            raise unavailable("the planner is gone")
        call.result()

    async def drain(self) -> None:
        self.up = False
        await self.servicer.drain()
        await self._leave()

    async def die(self) -> None:
        """Be gone without a word, as far as the others can tell."""
        self.up = False
        self.store.dead = True
        self.network.cut()
        await self.servicer.drain()
        await self._leave()

    async def _leave(self) -> None:
        for call in self._calls:
            call.cancel()
        await self.store.close()
        await asyncio.to_thread(self.network.__exit__, None, None, None)


class Reader:
    """One rank: reads its stream from whichever planner is up, and notes what it is told."""

    def __init__(self, site: Site, job: str, replica: int, rank: int) -> None:
        self._site, self._where = site, {"job_id": job, "replica": replica, "rank": rank}
        self._next = 0
        self.told: dict[tuple[str, int, int], bytes] = {}

    async def send_initial_metadata(self, _: Any) -> None:
        """Take part in the call as its context."""

    async def write(self, response: bytes) -> None:
        iteration = pb.StreamSchedulesResponse.FromString(response).iteration
        assert iteration >= self._next
        self.told[self._where["job_id"], self._where["replica"], iteration] = response
        self._next = iteration + 1

    async def read(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._site.dice.choice([0.2, 600, 600])):
                    await self._site.ask("stream_schedules", lambda: stream(self._next, **self._where), self)


class Site:
    """Planners on one Redis, and everything that may happen to them."""

    def __init__(self, server: RedisServer, dice: random.Random) -> None:
        self.server, self.dice = server, dice
        self.planners = [Planner(server, dice, own=place == 0) for place in range(3)]
        self.accepted: set[tuple[str, int, int]] = set()

    async def ask(self, name: str, request: Callable[[], Any], context: Any = None) -> None:
        """Ask one planner; whoever is away or refuses is asked again, or another is."""
        while True:
            up = [planner for planner in self.planners if planner.up]
            with contextlib.suppress(StoreError, RefusalError, IndexError):
                return await self.dice.choice(up).call(name, request(), context)
            await asyncio.sleep(0.02)

    async def submit(self, job: str, replica: int, first: int) -> None:
        for iteration in range(first, first + BURST):
            request = partial(submit, iteration, job_id=job, replica=replica)
            if self.dice.random() < 0.1:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.01 * self.dice.random()):
                        await self.ask("submit_batch", request)
            await self.ask("submit_batch", request)
            self.accepted.add((job, replica, iteration))

    async def break_something(self) -> None:
        await asyncio.sleep(self.dice.choice([0, 0.03, 0.06, 0.1]))
        place = self.dice.randrange(len(self.planners))
        planner = self.planners[place]
        match self.dice.choice(["die", "drain", "cut", "cut", "connections", "server"]):
            case "cut":
                planner.network.cut()
                await asyncio.sleep(self.dice.choice([0.4, 1.5]) * LEASE_MS / 1000)
                planner.network.mend()
            case "connections":
                with self.server.client() as client:
                    client.client_kill_filter(_type=self.dice.choice(["normal", "pubsub"]), skipme=True)
            case "server":
                self.server.kill()
                await asyncio.to_thread(self.server.start)
            case ending:
                self.planners[place] = Planner(self.server, self.dice, own=planner.own)
                ended = planner.die() if ending == "die" else planner.drain()
                await asyncio.gather(ended, self.planners[place].start())

    def missing(self, readers: list[Reader]) -> set[tuple[str, int, int]]:
        """Batches that were accepted, and of which fewer than all ranks were told."""
        told: defaultdict[tuple[str, int, int], int] = defaultdict(int)
        for reader in readers:
            for batch in reader.told:
                told[batch] += 1
        return {batch for batch in self.accepted if told[batch] < RANKS}


@pytest.mark.parametrize("seed", [1, 2])
def test_each_accepted_batch_has_one_outcome_whatever_breaks(seed: int) -> None:
    async def scenario(server: RedisServer) -> None:
        dice = random.Random(seed)
        site = Site(server, dice)
        for planner in site.planners:
            await planner.start()
        for job in JOBS:
            request = register(job, ranks=RANKS, replicas=REPLICAS)
            request.partition.CopyFrom(even_partition(request.spec))
            await site.ask("register_job", partial(pb.RegisterJobRequest.FromString, request.SerializeToString()))
        places = [(job, replica) for job in JOBS for replica in range(REPLICAS)]
        readers = [Reader(site, *place, rank) for place in places for rank in range(RANKS)]
        reading = [asyncio.create_task(reader.read()) for reader in readers]
        for turn in range(FAULTS):
            burst = [site.submit(*place, turn * BURST) for place in places]
            await asyncio.gather(*burst, site.break_something())
            while site.missing(readers):  # nothing new comes that would wake whoever sleeps over it
                await asyncio.sleep(0.01)
        again = [Reader(site, *place, 0) for place in places]
        reading += [asyncio.create_task(reader.read()) for reader in again]
        while sum(len(reader.told) for reader in again) < len(site.accepted):
            await asyncio.sleep(0.01)
        told = {(batch, part) for reader in readers + again for batch, part in reader.told.items()}
        assert len(told) == len(site.accepted)
        with keys_of(server) as keys:
            assert not [name for name in keys if name.endswith((":queue", ":waiting", ":unsettled", ":turns"))]
            assert min(keys.values()) > 0
        for task in reading:
            task.cancel()
        for planner in site.planners:
            await planner.drain()

    with RedisServer(appends=True) as server:
        run(scenario(server))
