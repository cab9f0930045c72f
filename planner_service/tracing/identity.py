"""Each batch is a trace whose number follows from the batch's name.

So planners that share a store put their spans of one batch into one trace without telling each other, and whoever knows
a job, attempt, replica and iteration can look its trace up.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planner_service.tracing.tracer import Replica


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """A batch's trace (16 bytes) and the span in it that all others are below (8 bytes)."""

    trace: int
    root: int


def identity_of(replica: Replica, iteration: int) -> Identity:
    """Return the numbers of a batch: the first 24 bytes of SHA-256 over its name's parts, a line each."""
    parts = (replica.job_id, replica.attempt, replica.replica, iteration)
    digest = hashlib.sha256("\n".join(map(str, parts)).encode()).digest()
    return Identity(trace=int.from_bytes(digest[:16]), root=int.from_bytes(digest[16:24]))
