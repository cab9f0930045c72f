"""Whether the store answers, how soon, and what waits in it."""

from __future__ import annotations

from typing import Final, Literal, get_args

from planner_service.metrics import catalogue

StoreFailure = Literal["away", "full", "unusable"]

_ERRORS: Final = {error: catalogue.STORE_ERRORS.labels(error) for error in get_args(StoreFailure)}


def store_available(answers: bool) -> None:
    """It begins or ceases to answer."""
    catalogue.STORE_AVAILABLE.set(answers)


def store_answered(elapsed_s: float) -> None:
    """A Redis gave the answer that was asked for."""
    catalogue.STORE_SECONDS.observe(elapsed_s)


def store_failed(error: StoreFailure) -> None:
    """A Redis did not."""
    _ERRORS[error].inc()


def queue_is(*, waiting: int, claimed: int, oldest_age_s: float) -> None:
    """What was found in the whole store."""
    catalogue.QUEUE_BATCHES.set(waiting)
    catalogue.QUEUE_CLAIMED.set(claimed)
    catalogue.QUEUE_AGE.set(oldest_age_s)
