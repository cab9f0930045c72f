"""Reads now and then what only the store knows: its queue, and how jobs stand whose trainers talk to this planner."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from planner_service import metrics
from planner_service.store import StoreError

if TYPE_CHECKING:
    from planner_service.store import PlanStore

PERIOD_S: Final = 2.0

_log = logging.getLogger(__name__)


async def sample_store(store: PlanStore) -> None:
    """Keep the metrics of the store fresh until cancelled; while it is away they stay as they were."""
    while True:
        try:
            await _sample(store)
        except StoreError as error:
            _log.debug("the store tells nothing: %s", error)
        await asyncio.sleep(PERIOD_S)


async def _sample(store: PlanStore) -> None:
    queue = await store.queue()
    metrics.queue_is(waiting=queue.num_waiting, claimed=queue.num_claimed, oldest_age_s=queue.oldest_age_ms / 1000)
    for job_id in metrics.JOBS.known:
        standing = await store.standing(job_id)
        if standing is None:  # closed at another planner, or forgotten
            metrics.JOBS.forget(job_id)
        else:
            metrics.JOBS.stands(
                job_id, lead=standing.lead, plan_bytes=standing.plan_bytes, report_bytes=standing.report_bytes
            )
