"""Digests that ranks compare before they run: SHA-256 over deterministic serializations."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from dip.planner.v1 import planner_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from google.protobuf.message import Message


def message_digest(message: Message) -> bytes:
    """SHA-256 of the deterministic serialization of a message, 32 bytes."""
    return hashlib.sha256(message.SerializeToString(deterministic=True)).digest()


def batch_digest(batch: pb.Batch) -> bytes:
    """Digest of one replica's batch."""
    return message_digest(batch)


def partition_digest(partition: pb.Partition) -> bytes:
    """Digest of a partition, in the order in which it lists its chunks."""
    return message_digest(partition)


def sub_microbatches_digest(sub_microbatches: Iterable[pb.SubMicrobatch]) -> bytes:
    """Digest of the sub-microbatches of a plan: of a Plan that holds nothing else."""
    return message_digest(pb.Plan(sub_microbatches=sub_microbatches))


def schedule_digest(schedule: pb.RankSchedule) -> bytes:
    """Digest of one rank's schedule."""
    return message_digest(schedule)


def combine_digests(batch: bytes, partition: bytes, sub_microbatches: bytes, schedules: Sequence[bytes]) -> bytes:
    """Digest of a whole plan from the digests of its parts.

    Parameters
    ----------
    batch, partition, sub_microbatches
        Digests of the parts, 32 bytes each.
    schedules
        Digests of every rank's schedule, in rank order.

    Returns
    -------
    bytes
        SHA-256 over the parts, in this order.
    """
    return hashlib.sha256(b"".join((batch, partition, sub_microbatches, *schedules))).digest()


def plan_digest(plan: pb.Plan, batch: pb.Batch) -> bytes:
    """Digest of a plan for a batch, recomputed from its parts (``plan.digest`` is not read)."""
    return combine_digests(
        batch_digest(batch),
        partition_digest(plan.partition),
        sub_microbatches_digest(plan.sub_microbatches),
        [schedule_digest(schedule) for schedule in plan.ranks],
    )


def streamed_digest(streamed: pb.StreamedSchedule) -> bytes:
    """Digest of the whole plan that a rank's streamed part belongs to.

    The rank's own schedule and the sub-microbatches are hashed again; the other parts are taken as stated.

    Raises
    ------
    ValueError
        If the rank's own schedule is not the one whose digest the part states, or the part states none for it.
    """
    rank, stated = streamed.schedule.rank, streamed.schedule_digests
    if not 0 <= rank < len(stated):
        raise ValueError(f"schedule.rank is {rank}, schedule_digests holds {len(stated)} digests")
    if schedule_digest(streamed.schedule) != stated[rank]:
        raise ValueError(f"schedule of rank {rank} is not the one that schedule_digests[{rank}] was made of")
    return combine_digests(
        streamed.batch_digest, streamed.partition_digest, sub_microbatches_digest(streamed.sub_microbatches), stated
    )
