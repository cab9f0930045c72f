"""Batches are handed to the store, whose queue the planners work off."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dip.digests import batch_digest
from dip.planner.v1 import planner_pb2 as pb
from dip.validation import validate_submit_batch

from planner_service.server import refusals
from planner_service.store import BatchKey, PlanStore, ReplicaKey

if TYPE_CHECKING:
    from planner_service.server.dispatcher import Dispatcher
    from planner_service.server.jobs import CurrentJob


class Batches:
    """Accepts batches.

    Parameters
    ----------
    max_queued
        Batches of one replica that may wait for a plan.
    """

    def __init__(self, store: PlanStore, dispatcher: Dispatcher, *, max_queued: int) -> None:
        self._store = store
        self._dispatcher = dispatcher
        self._max_queued = max_queued

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
        with self._dispatcher.claiming() as claimant:
            added = await self._store.add_batch(
                key, digest=digest, batch=batch, limit=self._max_queued, claimant=claimant
            )
            if added.claim is not None:
                self._dispatcher.take(added.claim)
        if added.digest != digest:
            raise refusals.already_exists(
                f"iteration {request.iteration} of replica {request.replica} was submitted with another batch"
            )


def _prepare(job: CurrentJob, request: pb.SubmitBatchRequest) -> tuple[bytes, bytes]:
    """Check a batch and serialize its part of a PlanRequest; for a thread, as big batches take milliseconds."""
    validate_submit_batch(request, job.spec)
    part = pb.PlanRequest(batch=request.batch)
    return batch_digest(request.batch), part.SerializeToString(deterministic=True)
