"""A store by its URL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner_service.store.memory import MemoryStore

if TYPE_CHECKING:
    from planner_service.store.protocol import PlanStore


def open_store(url: str, *, kept_iterations: int, kept_bytes: int, kept_closed_jobs: int, idle_job_s: int) -> PlanStore:
    """Make the store that a URL names; it connects when it is started.

    Parameters
    ----------
    url
        ``memory://``, or ``redis://`` or ``rediss://`` with host, port and database.
    kept_iterations, kept_bytes, kept_closed_jobs, idle_job_s
        How much is kept; see `MemoryStore`.
    """
    if url == "memory://":
        return MemoryStore(
            kept_iterations=kept_iterations,
            kept_bytes=kept_bytes,
            kept_closed_jobs=kept_closed_jobs,
            idle_job_s=idle_job_s,
        )
    from planner_service.store.redis_store import RedisStore  # only planners that share one need the package

    return RedisStore(
        url,
        kept_iterations=kept_iterations,
        kept_bytes=kept_bytes,
        kept_closed_jobs=kept_closed_jobs,
        idle_job_s=idle_job_s,
    )


def without_password(url: str) -> str:
    """Return a URL as it may be shown: without who connects and how."""
    scheme, _, rest = url.partition("://")
    place, _, _ = rest.partition("?")
    return f"{scheme}://{place.rpartition('@')[2]}"
