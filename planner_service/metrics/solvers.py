"""How solver processes come and go."""

from __future__ import annotations

from typing import Final, Literal, get_args

from planner_service.metrics import catalogue

Reason = Literal["overran", "died", "cancelled", "unready"]

_ENDS: Final = {reason: catalogue.WORKER_ENDS.labels(reason) for reason in get_args(Reason)}


def pool_opened(workers: int) -> None:
    """A pool will keep so many processes."""
    catalogue.WORKERS.inc(workers)


def pool_closed(workers: int) -> None:
    """A pool keeps them no more."""
    catalogue.WORKERS.dec(workers)


def worker_ready() -> None:
    """One is started."""
    catalogue.READY_WORKERS.inc()


def worker_gone() -> None:
    """One that was ready is not any more."""
    catalogue.READY_WORKERS.dec()


def worker_busy() -> None:
    """One has a task."""
    catalogue.BUSY_WORKERS.inc()


def worker_free() -> None:
    """It is done with it, or gone."""
    catalogue.BUSY_WORKERS.dec()


def worker_lost(reason: Reason) -> None:
    """One has to be started anew."""
    _ENDS[reason].inc()
