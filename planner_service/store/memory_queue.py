"""The batches of the default store that wait for a plan, and who has claimed which."""

from __future__ import annotations

import itertools
from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner_service.store.claims import Claim, Claimant, Wait
from planner_service.store.facts import QueueState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from planner_service.store.records import BatchKey, ReplicaKey


@dataclass(slots=True)
class _Waiting:
    """A batch without an outcome; `owner` is the name of the planner that has claimed it, empty where none has."""

    key: BatchKey
    digest: bytes
    batch: bytes
    token: str
    came_s: float
    owner: str = ""
    lease_ends_s: float = 0.0
    claims: int = 0


class MemoryQueue:
    """Waiting batches of all jobs, in one lane a job: clients take turns, and the jobs of each among themselves.

    Parameters
    ----------
    clock
        Seconds that only go forward.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lanes: OrderedDict[str, dict[BatchKey, _Waiting]] = OrderedDict()  # the job whose turn it is comes first
        self._arrivals = itertools.count(1)
        self._running: dict[ReplicaKey, int] = {}
        self._bytes: Counter[str] = Counter()
        self._clients: dict[str, str] = {}  # who opened a job

    def num_bytes(self, job_id: str) -> int:
        """What the batches of a job take, claimed or not."""
        return self._bytes[job_id]

    def put(self, key: BatchKey, digest: bytes, batch: bytes, *, client: str = "") -> None:
        """Add a batch of a job that this client opened."""
        self._clients[key.replica.job_id] = client
        lane = self._lanes.setdefault(key.replica.job_id, {})
        lane[key] = _Waiting(key, digest, batch, token=str(next(self._arrivals)), came_s=self._clock())
        self._bytes[key.replica.job_id] += len(batch)

    def remove(self, key: BatchKey) -> None:
        """Take a batch off, claimed or not, if it is there."""
        lane = self._lanes.get(key.replica.job_id, {})
        waiting = lane.pop(key, None)
        if waiting is None:
            return
        self._bytes[key.replica.job_id] -= len(waiting.batch)
        if not lane:
            del self._lanes[key.replica.job_id], self._bytes[key.replica.job_id], self._clients[key.replica.job_id]

    def remove_job(self, job_id: str) -> None:
        """Take all batches of a job off."""
        self._lanes.pop(job_id, None)
        self._bytes.pop(job_id, None)
        self._clients.pop(job_id, None)
        self._running = {replica: last for replica, last in self._running.items() if replica.job_id != job_id}

    def state(self) -> QueueState:
        """Count the batches of all jobs."""
        now_s = self._clock()
        batches = [waiting for lane in self._lanes.values() for waiting in lane.values()]
        came_s = [waiting.came_s for waiting in batches if not waiting.owner or waiting.lease_ends_s <= now_s]
        return QueueState(
            num_waiting=len(came_s),
            num_claimed=len(batches) - len(came_s),
            oldest_age_ms=int((now_s - min(came_s, default=now_s)) * 1000),
        )

    def num_waiting(self, job_id: str) -> int:
        """Batches of a job, claimed or not."""
        return len(self._lanes.get(job_id, {}))

    def note_running(self, replica: ReplicaKey, iteration: int) -> None:
        """Note the highest iteration that a replica has begun, or is about to: plans of it would come too late."""
        self._running[replica] = max(iteration, self._running.get(replica, -1))

    def claim(self, claimant: Claimant, held: Sequence[Claim]) -> Claim | Wait:
        """Take the next batch; see `PlanStore.claim`."""
        known = {claim.token for claim in held}
        taken = self._lanes.keys() if claimant.jobs is None else claimant.jobs
        lanes = {job_id: lane for job_id, lane in self._lanes.items() if job_id in taken}
        for job_id, lane in lanes.items():
            free = [waiting for waiting in lane.values() if self._is_free(waiting, claimant, known)]
            if free:
                self._had_its_turn(job_id)
                return self.take(min(free, key=self._turn).key, claimant)
        leased = (
            waiting.lease_ends_s
            for lane in lanes.values()
            for waiting in lane.values()
            if waiting.owner != claimant.name or waiting.token not in known
        )
        ends_s = min(leased, default=None)
        return Wait(lease_ends_ms=None if ends_s is None else max(0, round((ends_s - self._clock()) * 1000)))

    def take(self, key: BatchKey, claimant: Claimant) -> Claim:
        """Claim one batch that nobody has claimed."""
        waiting = self._lanes[key.replica.job_id][key]
        waiting.owner = claimant.name
        waiting.lease_ends_s = self._clock() + claimant.lease_ms / 1000
        waiting.claims += 1
        return Claim(
            key=key,
            digest=waiting.digest,
            batch=waiting.batch,
            tries=waiting.claims - 1,
            token=waiting.token,
            workers=claimant.workers,
        )

    def renew(self, claimant: Claimant, held: Sequence[Claim]) -> list[Claim]:
        """Begin leases anew; returns the claims that are lost."""
        lost = []
        for claim in held:
            waiting = self._owned(claimant, claim)
            if waiting is None:
                lost.append(claim)
            else:
                waiting.lease_ends_s = self._clock() + claimant.lease_ms / 1000
        return lost

    def release(self, claimant: Claimant, held: Sequence[Claim]) -> None:
        """Give claims back as if they had never been tried."""
        for claim in held:
            waiting = self._owned(claimant, claim)
            if waiting is not None:
                waiting.owner = ""
                waiting.claims -= 1

    def _owned(self, claimant: Claimant, claim: Claim) -> _Waiting | None:
        waiting = self._lanes.get(claim.key.replica.job_id, {}).get(claim.key)
        if waiting is None or waiting.token != claim.token or waiting.owner != claimant.name:
            return None
        return waiting

    def _had_its_turn(self, job_id: str) -> None:
        """Put all jobs of its client behind those of others, this one last: many jobs are not many turns."""
        client = self._clients[job_id]
        for other in [other for other in self._lanes if self._clients[other] == client]:
            self._lanes.move_to_end(other)
        self._lanes.move_to_end(job_id)

    def _is_free(self, waiting: _Waiting, claimant: Claimant, known: set[str]) -> bool:
        if waiting.owner == claimant.name and waiting.token in known:
            return False
        return not waiting.owner or waiting.lease_ends_s <= self._clock()

    def _turn(self, waiting: _Waiting) -> tuple[bool, int, int]:
        key = waiting.key
        return key.iteration <= self._running.get(key.replica, -1), key.iteration, int(waiting.token)
