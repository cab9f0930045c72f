"""What a process remembers of plans it made: the same batch again is answered at once, a like one starts ahead."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING

from dip.planner.v1 import planner_pb2 as pb

from planner_service.search.recall import Recalled

if TYPE_CHECKING:
    from planner_service.search.quick import Candidate

KEPT_PLANS, KEPT_JOBS = 32, 16
"""How many plans, and schedules of how many jobs and partitions, are kept; the oldest go."""


class Reuse:
    """Plans by all that they answer, and the last schedule of each job and partition."""

    def __init__(self) -> None:
        self._plans: OrderedDict[bytes, bytes] = OrderedDict()
        self._schedules: OrderedDict[bytes, Recalled] = OrderedDict()

    def plan(self, request: pb.PlanRequest, *settings: object) -> pb.Plan | None:
        """Plan of the same request, made with the same settings, if it is remembered."""
        known = self._plans.get(_digest(request.SerializeToString(deterministic=True), *settings))
        return None if known is None else pb.Plan.FromString(known)

    def keep_plan(self, plan: pb.Plan, request: pb.PlanRequest, *settings: object) -> None:
        """Remember a plan by its request and the settings that it was made with."""
        key = _digest(request.SerializeToString(deterministic=True), *settings)
        self._plans[key] = plan.SerializeToString()
        if len(self._plans) > KEPT_PLANS:
            self._plans.popitem(last=False)

    def schedule(self, spec: pb.JobSpec, partition: pb.Partition) -> Recalled | None:
        """Last schedule of a job on a partition, if one is remembered."""
        return self._schedules.get(_place(spec, partition))

    def keep_schedule(self, found: Candidate, spec: pb.JobSpec, partition: pb.Partition) -> None:
        """Remember the last schedule of a job on a partition."""
        key = _place(spec, partition)
        self._schedules.pop(key, None)
        self._schedules[key] = Recalled.of(found)
        if len(self._schedules) > KEPT_JOBS:
            self._schedules.popitem(last=False)


def _place(spec: pb.JobSpec, partition: pb.Partition) -> bytes:
    return _digest(spec.SerializeToString(deterministic=True), partition.SerializeToString(deterministic=True))


def _digest(*parts: object) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else repr(part).encode()
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.digest()
