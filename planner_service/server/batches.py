"""Batches are handed to the store, whose queue the planners work off."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from dip.digests import batch_digest
from dip.planner.v1 import planner_pb2 as pb
from dip.validation import validate_submit_batch

from planner_service import logs, tracing
from planner_service.server import refusals
from planner_service.server.telling import about
from planner_service.store import Added, BatchKey, PlanStore, ReplicaKey

if TYPE_CHECKING:
    from planner_service.server.dispatcher import Dispatcher
    from planner_service.server.jobs import CurrentJob

_log = logging.getLogger(__name__)


class Batches:
    """Accepts batches.

    Parameters
    ----------
    max_queued
        Batches of one replica that may wait for a plan.
    max_queued_bytes
        What all of a job may take that wait for one.
    """

    def __init__(self, store: PlanStore, dispatcher: Dispatcher, *, max_queued: int, max_queued_bytes: int) -> None:
        self._store = store
        self._dispatcher = dispatcher
        self._max_queued = max_queued
        self._max_queued_bytes = max_queued_bytes
        self._adding: set[asyncio.Task[Added]] = set()

    async def submit(self, job: CurrentJob, request: pb.SubmitBatchRequest) -> None:
        """Take a batch, or know it already.

        Raises
        ------
        InvalidRequestError, StoreError, RefusalError
            ALREADY_EXISTS for another batch under the key.
        """
        digest, batch = await asyncio.to_thread(_prepare, job, request)
        replica = ReplicaKey(job_id=request.job_id, attempt=request.attempt, replica=request.replica)
        key = BatchKey(replica=replica, iteration=request.iteration)
        adding = asyncio.create_task(self._add(key, digest, batch))
        self._adding.add(adding)
        adding.add_done_callback(self._added)
        # Not with the caller: a claim that comes after it left would lie until its lease ends.
        added = await asyncio.shield(adding)
        if added.digest != digest:
            raise refusals.already_exists(
                f"iteration {request.iteration} of replica {request.replica} was submitted with another batch"
            )

    async def _add(self, key: BatchKey, digest: bytes, batch: bytes) -> Added:
        """Queue a batch, or begin with it at once where a worker is free."""
        with self._dispatcher.claiming() as claimant:
            added = await self._store.add_batch(
                key,
                digest=digest,
                batch=batch,
                limit=self._max_queued,
                limit_bytes=self._max_queued_bytes,
                claimant=claimant,
            )
            if added.new:
                tracing.tracer().submitted(key)
                _log.debug("submitted", extra=logs.fields(**about(key)))
            if added.claim is not None:
                self._dispatcher.take(added.claim)
        return added

    def _added(self, task: asyncio.Task[Added]) -> None:
        self._adding.discard(task)
        if not task.cancelled():
            task.exception()  # nobody else looks at it where the caller has left


def _prepare(job: CurrentJob, request: pb.SubmitBatchRequest) -> tuple[bytes, bytes]:
    """Check a batch and serialize its part of a PlanRequest; for a thread, as big batches take milliseconds."""
    validate_submit_batch(request, job.spec)
    part = pb.PlanRequest(batch=request.batch)
    return batch_digest(request.batch), part.SerializeToString(deterministic=True)
