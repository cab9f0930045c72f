"""Where jobs, batches, plans and reports are kept: one protocol, several homes."""

from planner_service.store.claims import Claim, Claimant, Wait
from planner_service.store.facts import JobStanding, QueueState
from planner_service.store.memory import MemoryStore
from planner_service.store.opening import open_store, without_password
from planner_service.store.protocol import PlanStore, Watch
from planner_service.store.records import (
    Added,
    Answer,
    AttemptOverError,
    BatchKey,
    Entry,
    JobRecord,
    Outcome,
    Progress,
    QueueBytesError,
    QueueFullError,
    RecentIteration,
    ReplicaKey,
    StoreAwayError,
    StoreError,
    StoreFullError,
    TooOldError,
)

__all__ = [
    "Added",
    "Answer",
    "AttemptOverError",
    "BatchKey",
    "Claim",
    "Claimant",
    "Entry",
    "JobRecord",
    "JobStanding",
    "MemoryStore",
    "Outcome",
    "PlanStore",
    "Progress",
    "QueueBytesError",
    "QueueFullError",
    "QueueState",
    "RecentIteration",
    "ReplicaKey",
    "StoreAwayError",
    "StoreError",
    "StoreFullError",
    "TooOldError",
    "Wait",
    "Watch",
    "open_store",
    "without_password",
]
