"""Where jobs, batches, plans and reports are kept: one protocol, several homes."""

from planner_service.store.memory import MemoryStore
from planner_service.store.protocol import PlanStore, Watch
from planner_service.store.records import (
    AttemptOverError,
    BatchKey,
    Entry,
    JobRecord,
    Outcome,
    Progress,
    ReplicaKey,
    StoreError,
    TooOldError,
)

__all__ = [
    "AttemptOverError",
    "BatchKey",
    "Entry",
    "JobRecord",
    "MemoryStore",
    "Outcome",
    "PlanStore",
    "Progress",
    "ReplicaKey",
    "StoreError",
    "TooOldError",
    "Watch",
]
