"""The shared store: a Redis, in which every step is one script, atomic and one round trip.

docs/redis.md describes the keys; what a step does is written down in `protocol.PlanStore`.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from planner_service import metrics
from planner_service.store import redis_scripts as scripts
from planner_service.store.claims import Claim, Claimant, Wait
from planner_service.store.facts import JobStanding, QueueState
from planner_service.store.records import (
    LATE,
    Added,
    Answer,
    AttemptOverError,
    BatchKey,
    Entry,
    JobRecord,
    Outcome,
    Progress,
    QueueBytesError,
    QueueFullError,
    RecentIteration,
    ReplicaKey,
    StoreAwayError,
    StoreError,
    StoreFullError,
    late_reason,
)
from planner_service.store.redis_address import RedisAddress
from planner_service.store.redis_client import RedisClient
from planner_service.store.redis_job_cache import RedisJobCache
from planner_service.store.redis_listener import RedisListener
from planner_service.store.redis_questions import RedisQuestions
from planner_service.store.redis_server_facts import UnusableRedisError
from planner_service.store.redis_words import (
    batch_words,
    claim_words,
    digits,
    planner_words,
    quoted,
    raise_refusal,
    recent_iterations,
    replica_words,
    unquoted,
)
from planner_service.store.watches import EventWatch, Watches

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_TIMEOUT_S: Final = 3.0
_REPLICAS_AT_ONCE: Final = 16  # one script reads of so many: others wait for it


class RedisStore:
    """A `PlanStore` in one database of a Redis, for use from one event loop.

    Parameters
    ----------
    url
        ``redis://[[user]:password@]host[:port][/database]``, or ``rediss://``.
    kept_iterations, kept_bytes, kept_closed_jobs
        As `MemoryStore` has them; planners that share a Redis are given the same.
    idle_job_s
        Seconds after which Redis forgets a job that nobody writes to.
    timeout_s
        How long an answer of Redis may take.
    password_file
        Where the password is; None: in the url, or there is none.

    Raises
    ------
    StoreError
        The url cannot be read.
    """

    def __init__(
        self,
        url: str,
        *,
        kept_iterations: int = 32,
        kept_bytes: int = 128 * 2**20,
        kept_closed_jobs: int = 8,
        idle_job_s: int = 7 * 24 * 3600,
        timeout_s: float = _TIMEOUT_S,
        password_file: Path | None = None,
    ) -> None:
        self._idle_ms = idle_job_s * 1000
        self._kept = (self._idle_ms, kept_iterations, kept_bytes)
        self._kept_closed_jobs = kept_closed_jobs
        self._client = RedisClient(RedisAddress.parse(url, password_file=password_file), timeout_s=timeout_s)
        self._records = RedisJobCache()
        self._watches = Watches()
        self._questions = RedisQuestions(self._next_answers)
        self._listener: RedisListener | None = None

    async def start(self, on_lost: Callable[[], None], on_available: Callable[[bool], None] | None = None) -> None:
        """Connect; see `PlanStore.start`."""
        if on_available is not None:
            self._client.on_available = on_available
        self._client.address.check_files()
        listener = RedisListener(self._client, self._watches, on_lost)
        await listener.start()
        self._listener = listener
        if self._client.answers:
            try:
                await self._client.run(scripts.JOB, "", "")
            except UnusableRedisError as error:
                raise StoreError(str(error)) from None
            except StoreAwayError:
                pass  # since it was subscribed to; the log has it, and the listener tries for it again

    async def close(self) -> None:
        """Let go of connections."""
        if self._listener is not None:
            await self._listener.close()
        await self._client.close()

    @property
    def shared(self) -> bool:
        """Other planners may use it."""
        return True

    async def job(self, job_id: str) -> JobRecord | None:
        """Read one job."""
        known = self._records.get(job_id)
        stored = await self._client.run(scripts.JOB, quoted(job_id), known.stamp if known else b"")
        return self._records.read(job_id, stored, known)

    async def jobs(self) -> Sequence[JobRecord]:
        """Read all jobs, open and closed, by job_id."""
        known = self._records.kept()
        stored = await self._client.run(scripts.JOBS, *(kept.stamp for kept in known.values()))
        by_id = {unquoted(job): fields for job, fields in stored}
        found = [self._records.read(job_id, by_id[job_id], known.get(job_id)) for job_id in sorted(by_id)]
        return [record for record in found if record is not None]

    async def put_job(self, record: JobRecord) -> JobRecord | None:
        """Write a job if the stored version is still the record's; see `PlanStore.put_job`."""
        stamp = secrets.token_bytes(8)
        written = await self._client.run(
            scripts.PUT_KNOWN_JOB if record.version else scripts.PUT_NEW_JOB,
            self._idle_ms,
            self._kept_closed_jobs,
            quoted(record.job_id),
            record.version,
            record.attempt,
            record.spec,
            record.partition,
            record.replicas,
            int(record.closed),
            record.owner,
            stamp,
        )
        return self._records.keep(replace(record, version=record.version + 1), stamp) if written else None

    async def progress(self, job_id: str) -> Progress:
        """How far the current attempt got."""
        answer = await self._client.run(scripts.PROGRESS, quoted(job_id))
        if not answer:
            return Progress()
        planned, reported, num_waiting, num_reported, num_fell_back, left_ms = answer
        return Progress(
            last_planned_iteration=int(planned or -1),
            last_reported_iteration=int(reported or -1),
            num_waiting=num_waiting,
            num_reported=num_reported,
            num_fell_back=num_fell_back,
            quiet_ms=max(0, self._idle_ms - left_ms),
        )

    async def add_batch(
        self,
        key: BatchKey,
        *,
        digest: bytes,
        batch: bytes,
        limit: int,
        limit_bytes: int | None = None,
        claimant: Claimant | None = None,
    ) -> Added:
        """Write a batch and queue it unless its key is taken; see `PlanStore.add_batch`."""
        bounds = limit, "" if limit_bytes is None else limit_bytes
        arguments = (*self._kept, *batch_words(key), digest, batch, *bounds, LATE, *planner_words(claimant))
        status, *answer = await self._write(scripts.ADD_BATCH, arguments, key.replica, "")
        raise_refusal(status, answer, key.replica, key.iteration)
        if status == b"full":
            raise QueueFullError(key.replica.replica, limit)
        if status == b"heavy" and limit_bytes is not None:
            raise QueueBytesError(int(answer[0]), limit_bytes)
        if status == b"late":
            metrics.batches_late(1)
            return Added(digest=digest, settled=True, new=True)
        claim = None
        standing, settled, *claimed = answer
        if claimed:
            token, workers = claimed
            claim = Claim(key=key, digest=digest, batch=batch, tries=0, token=token.decode(), workers=workers)
        return Added(digest=standing, settled=bool(settled), new=status == b"added", claim=claim)

    async def claim(self, claimant: Claimant, held: Sequence[Claim]) -> Claim | Wait:
        """Take a waiting batch under a lease; see `PlanStore.claim`."""
        jobs = [quoted(job_id) for job_id in sorted(claimant.jobs or ())]
        status, *answer = await self._client.run(
            scripts.CLAIM, self._idle_ms, *planner_words(claimant), len(jobs), *jobs, *claim_words(held)
        )
        if status == b"wait":
            return Wait(lease_ends_ms=answer[0])
        job, attempt, replica, iteration, digest, batch, tries, token, workers = answer
        of = ReplicaKey(job_id=unquoted(job), attempt=int(attempt), replica=int(replica))
        return Claim(
            key=BatchKey(replica=of, iteration=int(iteration)),
            digest=digest,
            batch=batch,
            tries=tries,
            token=token.decode(),
            workers=workers,
        )

    async def renew(self, claimant: Claimant, held: Sequence[Claim]) -> Sequence[Claim]:
        """Begin the leases of claims anew; returns those that are lost."""
        lost = await self._client.run(scripts.RENEW, self._idle_ms, *planner_words(claimant), *claim_words(held))
        return [held[place] for place in lost]

    async def release(self, claimant: Claimant, held: Sequence[Claim]) -> None:
        """Give claims back as if they had never been tried."""
        await self._client.run(scripts.RELEASE, claimant.name, *claim_words(held))

    async def settle(self, key: BatchKey, digest: bytes, outcome: Outcome) -> bool:
        """Write what became of a batch unless that is known; whether this outcome stands."""
        status, *answer = await self._client.run(
            scripts.SETTLE,
            *self._kept,
            *batch_words(key),
            digest,
            int(not outcome.unplanned_reason),
            outcome.num_bytes,
            outcome.answer,
            outcome.unplanned_reason,
            outcome.summary,
            *outcome.responses,
        )
        raise_refusal(status, answer, key.replica, key.iteration)
        return bool(answer[0])

    async def entry(self, key: BatchKey) -> Entry | None:
        """Read one batch; of a closed job too."""
        status, *answer = await self._client.run(scripts.ENTRY, *batch_words(key))
        raise_refusal(status, answer, key.replica, key.iteration)
        if status == b"none":
            return None
        digest, ranks, stored_answer, reason, summary, *responses = answer
        outcome = None
        if ranks is not None:
            outcome = Outcome(
                responses=tuple(response or b"" for response in responses),
                answer=stored_answer or b"",
                unplanned_reason=(reason or b"").decode(),
                summary=summary or b"",
            )
        return Entry(iteration=key.iteration, digest=digest, outcome=outcome)

    async def next_answer(self, replica: ReplicaKey, rank: int, first_iteration: int) -> Answer | None:
        """Read what one rank is told next, from `first_iteration` on."""
        return await self._questions.next_answer(replica, rank, first_iteration)

    async def add_report(
        self, key: BatchKey, rank: int, report: bytes, *, summary: bytes = b"", fell_back: bool = False
    ) -> bool:
        """Write a rank's report unless there is one, and settle what is too late; whether it was written."""
        late = late_reason(rank, key.iteration)
        told = rank, report, late, digits(key.iteration + 1), summary, int(fell_back)
        arguments = (*self._kept, *batch_words(key), *told)
        status, *answer = await self._write(scripts.ADD_REPORT, arguments, key.replica, digits(key.iteration))
        raise_refusal(status, answer, key.replica, key.iteration)
        written, *late = answer
        metrics.batches_late(sum(late))
        return bool(written)

    async def reports(self, key: BatchKey) -> Sequence[bytes]:
        """Read the reports of one iteration, by rank."""
        status, *answer = await self._client.run(scripts.REPORTS, *batch_words(key))
        raise_refusal(status, answer, key.replica, key.iteration)
        by_rank = dict(zip(map(int, answer[::2]), answer[1::2], strict=True))
        return [by_rank[rank] for rank in sorted(by_rank)]

    async def recent(
        self, job_id: str, attempt: int, *, replicas: Sequence[int], count: int, last: int | None = None
    ) -> Sequence[RecentIteration]:
        """Read in few bytes what is kept of the newest iterations; see `PlanStore.recent`."""
        found: list[RecentIteration] = []
        newest = "" if last is None else digits(last)
        for first in range(0, len(replicas), _REPLICAS_AT_ONCE):
            some = replicas[first : first + _REPLICAS_AT_ONCE]
            status, *answer = await self._client.run(scripts.RECENT, quoted(job_id), attempt, count, newest, *some)
            if status == b"over":
                raise AttemptOverError(job_id, attempt)
            found += (recent for stored in answer for recent in recent_iterations(*stored))
        return found

    async def queue(self) -> QueueState:
        """Count the batches of all jobs that have no outcome."""
        num_waiting, num_claimed, oldest_age_ms = await self._client.run(scripts.QUEUE)
        return QueueState(num_waiting=num_waiting, num_claimed=num_claimed, oldest_age_ms=oldest_age_ms)

    async def standing(self, job_id: str) -> JobStanding | None:
        """Tell how far ahead of its trainers a job's plans are, and what it takes; None where it is over or unknown."""
        found = await self._client.run(scripts.STANDING, quoted(job_id))
        if found is None:
            return None
        settled, reported, plan_bytes, report_bytes = (found[at::4] for at in range(4))
        return JobStanding(
            lead=min(
                (int(last or run) - int(run) for last, run in zip(settled, reported, strict=True) if run is not None),
                default=None,
            ),
            plan_bytes=sum(int(num_bytes or 0) for num_bytes in plan_bytes),
            report_bytes=sum(int(num_bytes or 0) for num_bytes in report_bytes),
        )

    def watch(self, replica: ReplicaKey) -> EventWatch:
        """Make a watch on one replica of one attempt."""
        return self._watches.watch(replica)

    def watch_queue(self) -> EventWatch:
        """Make a watch on what waits to be claimed."""
        return self._watches.watch_queue()

    async def _write(
        self, script: scripts.Script, arguments: Sequence[bytes | str | int], replica: ReplicaKey, run: str
    ) -> Any:
        """Run a script that needs room; where there is none, what is of iterations before `run` gives way."""
        try:
            return await self._client.run(script, *arguments)
        except StoreFullError:
            if not await self._client.run(scripts.MAKE_ROOM, *replica_words(replica), run):
                raise
            return await self._client.run(script, *arguments)

    async def _next_answers(
        self, replica: ReplicaKey, first_iteration: int, ranks: Sequence[int]
    ) -> dict[int, Answer] | None:
        status, *answer = await self._client.run(
            scripts.NEXT_ANSWERS, *replica_words(replica), digits(first_iteration), *ranks
        )
        raise_refusal(status, answer, replica, first_iteration)
        if status == b"none":
            return None
        iteration, more, reason, *responses = answer
        return {
            rank: Answer(
                iteration=int(iteration),
                response=response or b"",
                unplanned_reason=(reason or b"").decode(),
                more=bool(more),
            )
            for rank, response in zip(ranks, responses, strict=True)
        }
