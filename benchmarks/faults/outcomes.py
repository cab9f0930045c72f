"""Whether every batch that was accepted came to an outcome in the store: a plan, or the reason why there is none.

A full store forgets iterations that were run: a batch that is gone as too old has to be one of them.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from planner_service.store import BatchKey, ReplicaKey, StoreError, TooOldError
from planner_service.store.redis_store import RedisStore

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.faults.messages import Accepted, Executed
    from planner_service.store import PlanStore

_POLL_S = 0.2
_ANSWER_S = 240.0
"""How long the store may take to answer: what it holds is asked for, not how long a busy machine takes for it."""


def lost(
    url: str, job_id: str, accepted: Iterable[Accepted], *, executed: Iterable[Executed] = (), patience_s: float
) -> list[str]:
    """Wait until all batches have outcomes; return what is said of those that have none after all.

    Parameters
    ----------
    url
        Of the store, a Redis.
    accepted
        Batches of the job's current attempt.
    executed
        What ranks ran.
    patience_s
        How long planners may still take.
    """
    keys = {
        BatchKey(replica=ReplicaKey(job_id=job_id, attempt=one.attempt, replica=one.replica), iteration=one.iteration)
        for one in accepted
    }
    run = {
        BatchKey(replica=ReplicaKey(job_id=job_id, attempt=one.attempt, replica=one.replica), iteration=one.iteration)
        for one in executed
    }
    return asyncio.run(_lost(url, keys, run, patience_s))


async def _lost(url: str, keys: set[BatchKey], run: set[BatchKey], patience_s: float) -> list[str]:
    store = RedisStore(
        url, kept_iterations=1, kept_bytes=2**20, kept_closed_jobs=1, idle_job_s=3600, timeout_s=_ANSWER_S
    )
    await store.start(on_lost=lambda: None)
    deadline = time.monotonic() + patience_s
    try:
        missing = {key: await _missing(store, key, run) for key in keys}
        while any(missing.values()) and time.monotonic() < deadline:
            await asyncio.sleep(_POLL_S)
            missing = {key: await _missing(store, key, run) for key, reason in missing.items() if reason}
    finally:
        await store.close()
    return [f"{_named(key)} was accepted: {reason}" for key, reason in missing.items() if reason]


def _named(key: BatchKey) -> str:
    return f"attempt {key.replica.attempt}, replica {key.replica.replica}, iteration {key.iteration}"


async def _missing(store: PlanStore, key: BatchKey, run: set[BatchKey]) -> str:
    """Return what is wrong with a batch; empty where it has an outcome, or was run and forgotten."""
    try:
        entry = await store.entry(key)
    except TooOldError as error:
        return "" if key in run else str(error)
    except StoreError as error:
        return str(error)
    if entry is None:
        return "the store does not know it"
    return "" if entry.outcome else "it has no outcome"
