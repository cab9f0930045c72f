"""A store by its URL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner_service.store.memory import MemoryStore
from planner_service.store.memory_room import MOST_BYTES
from planner_service.store.records import StoreError

if TYPE_CHECKING:
    from pathlib import Path

    from planner_service.store.protocol import PlanStore


def open_store(
    url: str,
    *,
    kept_iterations: int,
    kept_bytes: int,
    kept_closed_jobs: int,
    idle_job_s: int,
    most_bytes: int = MOST_BYTES,
    password_file: Path | None = None,
) -> PlanStore:
    """Make the store that a URL names; it connects when it is started.

    Parameters
    ----------
    url
        ``memory://``, or ``redis://`` or ``rediss://`` with host, port and database.
    kept_iterations, kept_bytes, kept_closed_jobs, idle_job_s
        How much is kept; see `MemoryStore`.
    most_bytes
        What everything in ``memory://`` may take; a Redis has its own ``maxmemory``.
    password_file
        Where the password of a Redis is, which is read again for each connection; None: in the URL, or there is none.

    Raises
    ------
    StoreError
        There is no store of this kind.
    """
    if url == "memory://":
        if password_file is not None:
            raise StoreError("DIP_STORE_PASSWORD_FILE is set, and DIP_STORE=memory:// asks for no password; unset it")
        return MemoryStore(
            kept_iterations=kept_iterations,
            kept_bytes=kept_bytes,
            kept_closed_jobs=kept_closed_jobs,
            idle_job_s=idle_job_s,
            most_bytes=most_bytes,
        )
    from planner_service.store.redis_store import RedisStore  # only planners that share one need the package

    return RedisStore(
        url,
        kept_iterations=kept_iterations,
        kept_bytes=kept_bytes,
        kept_closed_jobs=kept_closed_jobs,
        idle_job_s=idle_job_s,
        password_file=password_file,
    )


def without_password(url: str) -> str:
    """Return a URL as it may be shown: without who connects and how."""
    scheme, _, rest = url.partition("://")
    place, _, _ = rest.partition("?")
    return f"{scheme}://{place.rpartition('@')[2]}"
