"""Shows that a store in Redis answers whatever is asked of it as the store in memory does."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from redis_cases import empty, nothing
from serving import run
from store_cases import key, record
from waiting import PATIENCE_S

from benchmarks.redis_server import RedisServer, server_programs
from planner_service.store import (
    Added,
    Claim,
    Claimant,
    JobRecord,
    MemoryStore,
    Outcome,
    PlanStore,
    StoreError,
    Wait,
)
from planner_service.store.redis_store import RedisStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

KEPT: dict[str, int] = {"kept_iterations": 4, "kept_bytes": 400, "kept_closed_jobs": 1}
JOBS = ("a", "b c/ü*:", "c")
LAST = 2**63 - 1
CLAIMANTS = (
    Claimant(name="one", lease_ms=600_000, workers=1),
    Claimant(name="two", lease_ms=600_000, workers=2, jobs=frozenset(JOBS[:1])),
    Claimant(name="slow", lease_ms=0, workers=3),  # its leases are over as soon as they begin
)

# Mostly the same few, so that steps meet.
jobs = st.sampled_from([JOBS[0]] * 4 + list(JOBS))
replicas = st.sampled_from([0, 0, 0, 1])
iterations = st.sampled_from([*range(12)] * 5 + [99, 100, LAST])
reported = st.sampled_from([*range(5)] * 4 + [*range(5, 12), LAST])
ranks = st.integers(0, 1)
digests = st.sampled_from([b"\0one"] * 5 + [b"two"])
texts = st.sampled_from([b"", b"\0\r\n$1", b"x" * 40, b"y" * 90])
claimants = st.integers(0, len(CLAIMANTS) - 1)
raises = st.sampled_from([0, 0, 0, 1, 2])
seldom = st.sampled_from([False, False, False, True])
outcomes = st.one_of(
    st.builds(Outcome, responses=st.tuples(texts, texts), answer=texts, summary=texts),
    st.builds(Outcome, unplanned_reason=st.sampled_from(["no", "nö"])),
)

put_jobs = st.tuples(st.just("put_job"), jobs, raises, seldom, seldom)
add_batches = st.tuples(
    st.just("add_batch"), jobs, replicas, iterations, digests, st.integers(1, 9), st.none() | claimants
)
claims = st.tuples(st.just("claim"), claimants)
renewals = st.tuples(st.just("renew"), claimants, st.sets(st.integers(0, 5)))
releases = st.tuples(st.just("release"), claimants, st.sets(st.integers(0, 5)))
forgotten = st.tuples(st.just("forget"), claimants)
settlements = st.tuples(st.just("settle"), jobs, replicas, iterations, digests, outcomes)
settled_claims = st.tuples(st.just("settle_claim"), claimants, outcomes)
reports = st.tuples(st.just("add_report"), jobs, replicas, reported, ranks, texts, texts, st.booleans())
steps = st.one_of(
    put_jobs,
    *[add_batches] * 5,
    *[claims] * 2,
    renewals,
    releases,
    forgotten,
    *[settlements] * 2,
    *[settled_claims] * 4,
    reports,
)


@pytest.fixture(scope="module", params=server_programs())
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    """Start each kind of server in turn."""
    with RedisServer(program=server_programs()[request.param]) as started:
        yield started


class Both:
    """Does every step in both stores, and compares what they say."""

    def __init__(self, memory: PlanStore, shared: PlanStore) -> None:
        self._stores = (memory, shared)
        self._attempts = dict.fromkeys(JOBS, 0)
        self._held: list[list[tuple[Claim, Claim]]] = [[] for _ in CLAIMANTS]  # of each claimant, in either store

    async def do(self, step: tuple[Any, ...]) -> None:
        name, *arguments = step
        await getattr(self, name)(*arguments)
        await self.look()

    async def put_job(self, job: str, raised: int, closed: bool, stale: bool) -> None:
        known = await self._same(lambda store: store.job(job))
        version = known.version if isinstance(known, JobRecord) else 0
        self._attempts[job] += raised
        written = record(job, self._attempts[job], version=version - stale, spec=b"\r\n\0")
        await self._same(lambda store: store.put_job(replace(written, closed=closed, replicas=2)))

    async def add_batch(
        self, job: str, replica: int, iteration: int, digest: bytes, limit: int, claimant: int | None
    ) -> None:
        where = key(iteration, job_id=job, attempt=self._attempts[job], replica=replica)
        who = None if claimant is None else CLAIMANTS[claimant]
        added = await self._each(
            lambda store: store.add_batch(where, digest=digest, batch=b"\0" + digest, limit=limit, claimant=who)
        )
        assert self._plain(added[0]) == self._plain(added[1])
        if isinstance(added[0], Added) and added[0].claim and claimant is not None:
            self._held[claimant].append((added[0].claim, added[1].claim))

    async def claim(self, claimant: int) -> None:
        held = self._held[claimant]
        memory, shared = [[pair[side] for pair in held] for side in (0, 1)]
        of_memory, of_shared = await asyncio.gather(
            self._stores[0].claim(CLAIMANTS[claimant], memory), self._stores[1].claim(CLAIMANTS[claimant], shared)
        )
        assert self._plain(of_memory) == self._plain(of_shared)
        if isinstance(of_memory, Claim) and isinstance(of_shared, Claim):
            held.append((of_memory, of_shared))

    async def renew(self, claimant: int, places: set[int]) -> None:
        chosen = self._chosen(claimant, places)
        lost = [await self._stores[side].renew(CLAIMANTS[claimant], [pair[side] for pair in chosen]) for side in (0, 1)]
        assert [self._plain(claim) for claim in lost[0]] == [self._plain(claim) for claim in lost[1]]

    async def release(self, claimant: int, places: set[int]) -> None:
        chosen = self._chosen(claimant, places)
        for side in (0, 1):
            await self._stores[side].release(CLAIMANTS[claimant], [pair[side] for pair in chosen])

    async def forget(self, claimant: int) -> None:
        """Let a planner forget what it has claimed."""
        self._held[claimant].clear()

    async def settle(self, job: str, replica: int, iteration: int, digest: bytes, outcome: Outcome) -> None:
        where = key(iteration, job_id=job, attempt=self._attempts[job], replica=replica)
        await self._same(lambda store: store.settle(where, digest, outcome))

    async def settle_claim(self, claimant: int, outcome: Outcome) -> None:
        if self._held[claimant]:
            claim = self._held[claimant].pop(0)[0]
            await self._same(lambda store: store.settle(claim.key, claim.digest, outcome))

    async def add_report(
        self, job: str, replica: int, iteration: int, rank: int, report: bytes, summary: bytes, fell_back: bool
    ) -> None:
        where = key(iteration, job_id=job, attempt=self._attempts[job], replica=replica)
        await self._same(lambda store: store.add_report(where, rank, report, summary=summary, fell_back=fell_back))

    async def look(self) -> None:
        """Compare all that can be read."""
        await self._same(lambda store: store.jobs())
        for job in JOBS:
            await self._same(lambda store, job=job: store.progress(job))
            attempt = self._attempts[job]
            await self._same(
                lambda store, job=job, attempt=attempt: store.recent(job, attempt, replicas=(1, 0), count=3)
            )

    async def look_closely(self) -> None:
        """Compare all that can be read, of every iteration."""
        for job in JOBS:
            for last in (0, 3, 99, LAST):
                await self._same(
                    lambda store, job=job, last=last: store.recent(
                        job, self._attempts[job], replicas=(0, 1, 7), count=2, last=last
                    )
                )
            for replica in (0, 1):
                for iteration in (*range(12), 99, 100, 101, LAST - 1, LAST):
                    where = key(iteration, job_id=job, attempt=self._attempts[job], replica=replica)
                    await self._same(lambda store, where=where: store.entry(where))
                    await self._same(lambda store, where=where: store.reports(where))
                    await self._same(
                        lambda store, where=where: store.next_answer(where.replica, 1, where.iteration),
                    )

    def _chosen(self, claimant: int, places: set[int]) -> list[tuple[Claim, Claim]]:
        return [pair for place, pair in enumerate(self._held[claimant]) if place in places]

    async def _same(self, ask: Callable[[PlanStore], Awaitable[Any]]) -> Any:
        memory, shared = await self._each(ask)
        assert self._plain(memory) == self._plain(shared)
        return memory

    async def _each(self, ask: Callable[[PlanStore], Awaitable[Any]]) -> tuple[Any, Any]:
        async def answer(store: PlanStore) -> Any:
            try:
                return await ask(store)
            except StoreError as error:
                return error

        return await answer(self._stores[0]), await answer(self._stores[1])

    def _plain(self, said: Any) -> Any:
        """Return an answer without what may differ: names of claims, clocks, and who else there is."""
        match said:
            case StoreError():
                return type(said), str(said)
            case Claim():
                return replace(said, token="", workers=0)
            case Added(claim=Claim() as claim):
                return replace(said, claim=self._plain(claim))
            case Wait(lease_ends_ms=int()):
                return Wait(lease_ends_ms=0)
            case list() | tuple():
                return list(said)
        return said


@settings(
    max_examples=6,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@example([("put_job", "a", 1, False, False), ("add_batch", "a", 0, 3, b"two", 4, 2), ("claim", 0), ("claim", 2)])
@given(st.lists(steps, min_size=60, max_size=200))
def test_any_steps_have_the_same_answers(server: RedisServer, taken: list[tuple[Any, ...]]) -> None:
    empty(server)

    async def scenario() -> None:
        memory, shared = MemoryStore(**KEPT), RedisStore(server.url, timeout_s=PATIENCE_S, **KEPT)
        await shared.start(nothing)
        try:
            both = Both(memory, shared)
            for job in JOBS:
                await both.put_job(job, 1, False, False)
            for step in taken:
                await both.do(step)
            await both.look_closely()
        finally:
            await shared.close()

    run(scenario())
