"""Job records that this process has read, so that Redis need not send again what has not changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from planner_service.store.records import JobRecord

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_CAPACITY: Final = 1024
_UNCHANGED: Final = b"same"


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptRecord:
    """A record, and the stamp that Redis keeps beside it."""

    record: JobRecord
    stamp: bytes = field(repr=False)


class RedisJobCache:
    """Records by job.

    Every write of a job gives it a stamp of its own. Versions would not do: a Redis that lost its data counts anew.
    """

    def __init__(self) -> None:
        self._kept: dict[str, KeptRecord] = {}

    def kept(self) -> Mapping[str, KeptRecord]:
        """Return what is kept now."""
        return dict(self._kept)

    def get(self, job_id: str) -> KeptRecord | None:
        """Return what is kept now of one job."""
        return self._kept.get(job_id)

    def keep(self, record: JobRecord, stamp: bytes) -> JobRecord:
        """Keep a record; the one that was not written or read for longest makes room."""
        self._kept.pop(record.job_id, None)
        self._kept[record.job_id] = KeptRecord(record=record, stamp=stamp)
        if len(self._kept) > _CAPACITY:
            del self._kept[next(iter(self._kept))]
        return record

    def read(self, job_id: str, stored: Sequence[Any], known: KeptRecord | None) -> JobRecord | None:
        """Return a job's record from what `lua/job.lua` answered.

        Parameters
        ----------
        known
            What was kept when Redis was asked; others may have read or written the job since.
        """
        if not stored:
            self._kept.pop(job_id, None)
            return None
        if known is not None and stored[0] == _UNCHANGED:
            return known.record
        attempt, spec, partition, replicas, closed, owner, version, stamp = stored
        record = JobRecord(
            job_id=job_id,
            attempt=int(attempt),
            spec=spec,
            partition=partition,
            replicas=int(replicas),
            closed=closed == b"1",
            owner=(owner or b"").decode(),
            version=int(version),
        )
        return self.keep(record, stamp)
