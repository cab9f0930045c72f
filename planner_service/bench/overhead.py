"""What planning costs besides the search: CPU time of every step from a request's bytes to its plan's bytes.

The order that is lowered is that of the fixed schedule, so that nothing depends on how long a search ran.
"""

from __future__ import annotations

import statistics
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np
from dip.bounds import chain_bound_us
from dip.fallback import activation_room, fallback_plan, fitting_parts, fitting_ways
from dip.job import Job
from dip.listing import list_schedule
from dip.lowering import lower
from dip.partition import default_partition
from dip.planner.v1 import planner_pb2 as pb
from dip.validation import validate_plan_request
from dip.work import Work, chunks_of

from planner_service.check.workload import workload_request
from planner_service.domain.graph import task_graph
from planner_service.planning import make_plan
from planner_service.search.decoders import decode
from planner_service.search.seeds import seed_guides

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")

FIRST_PLAN_ROUNDS = 5
DECODES = 400
"""Most rounds of what takes longer, and how often an order is decoded."""


WHOLE = 1 << 30
"""A sub-microbatch size that no microbatch exceeds: the planner must not cut, which would make other tasks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Instance:
    """A batch of VLM-S on a partition that is kept, so that its size does not depend on a search.

    Parameters
    ----------
    microbatches
        How many the batch has.
    segments
        How often vision and language visit every rank.
    max_units
        Largest sub-microbatch of each module; whole microbatches where not named.
    limited
        Whether memory is limited, for which the planner would cut microbatches as it thinks best.
    """

    microbatches: int
    segments: tuple[int, int] = (2, 3)
    max_units: dict[str, int] = field(default_factory=dict)
    limited: bool = False

    def request(self, seed: int) -> pb.PlanRequest:
        """Request with its partition, to be kept."""
        made = workload_request("vlm-s", self.microbatches, seed, "web")
        options = made.job.options
        options.segments["vision"], options.segments["language"] = self.segments
        options.sub_microbatch_units.update({"vision": WHOLE, "language": WHOLE} | self.max_units)
        if not self.limited:
            del made.job.cluster.memory_bytes[:]
        made.partition.CopyFrom(default_partition(made.job, made.batch))
        return made


THOUSAND, THOUSAND_LIMITED = Instance(microbatches=26), Instance(microbatches=26, limited=True)
"""About 1,000 stage tasks."""

INSTANCES = {"64": Instance(microbatches=64), "16": Instance(microbatches=16, max_units={"vision": 9408})}
"""About 2,500 stage tasks: many microbatches, or few that are cut finer."""


def measure_instance(instance: Instance, *, rounds: int, seed: int) -> dict[str, Any]:
    """Measure all steps of an instance; milliseconds of CPU time, medians."""
    request = instance.request(seed)
    data = request.SerializeToString()
    Steps().plan(data)  # code and caches warm up
    measured = [Steps() for _ in range(rounds)]
    plans = [steps.plan(data) for steps in measured]
    names = measured[0].milliseconds
    plan = pb.Plan.FromString(plans[0])
    few = min(FIRST_PLAN_ROUNDS, rounds)
    return {
        "tasks": sum(action.kind <= pb.ACTION_KIND_BACKWARD_WEIGHT for rank in plan.ranks for action in rank.actions),
        "actions": sum(len(rank.actions) for rank in plan.ranks),
        "request_bytes": len(data),
        "plan_bytes": len(plans[0]),
        "steps_ms": {name: median(steps.milliseconds[name] for steps in measured) for name in names},
        "outside_search_ms": median(sum(steps.milliseconds.values()) for steps in measured),
        "first_plan_ms": median(first_plan_ms(request) for _ in range(few)),
        "fixed_schedule_ms": median(_fixed_schedule_ms(request) for _ in range(few)),
    }


def median(values: Iterable[float]) -> float:
    """Median, to two decimals."""
    return round(float(statistics.median(values)), 2)


def build_work(request: pb.PlanRequest) -> Work:
    """Stage tasks of a request with a partition, in sub-microbatches as the fixed schedule makes them."""
    job = Job.from_spec(request.job)
    chunks = chunks_of(job, request.partition)
    parts = fitting_parts(job, request.batch, chunks, activation_room(job, chunks))
    return Work(job=job, forward_only=request.batch.forward_only, chunks=chunks, parts=parts)


def decode_us(instance: Instance, *, seed: int) -> tuple[int, float]:
    """Stage tasks of an instance, and the median CPU time of decoding an order of them, in microseconds."""
    graph = task_graph(build_work(instance.request(seed)))
    _, guide = next(seed_guides(graph))
    decoded = decode(graph, guide)  # compiles
    times = []
    for _ in range(DECODES):
        began = time.thread_time_ns()
        decode(graph, guide)
        times.append((time.thread_time_ns() - began) / 1e3)
    return int(np.count_nonzero(decoded.start >= 0)), median(times)


class Steps:
    """Times of the steps of one plan, by name, in milliseconds."""

    def __init__(self) -> None:
        self.milliseconds: dict[str, float] = {}

    def plan(self, data: bytes) -> bytes:
        """Go from a request's bytes to a plan's; only what a search would find is not timed."""
        request = self._timed("parse", lambda: pb.PlanRequest.FromString(data))
        self._timed("validate", lambda: validate_plan_request(request))
        job = self._timed("job", lambda: Job.from_spec(request.job))
        chunks = chunks_of(job, request.partition)
        room = activation_room(job, chunks)
        parts = self._timed("parts", lambda: fitting_parts(job, request.batch, chunks, room))
        work = self._timed("work", lambda: Work(job=job, forward_only=False, chunks=chunks, parts=parts))
        self._timed("edges", lambda: (work.edges, work.groups, work.successors))
        self._timed("graph", lambda: task_graph(work, split=job.split_backward))
        bound_us = self._timed("bound", lambda: chain_bound_us(work))
        ways = fitting_ways(work, room, in_flight=job.ranks)
        orders = list_schedule(work, ways)
        plan = self._timed(
            "lower",
            lambda: lower(
                work,
                batch=request.batch,
                partition=request.partition,
                orders=orders,
                ways=ways,
                lower_bound_us=bound_us,
            ),
        )
        return self._timed("serialize", plan.SerializeToString)

    def _timed(self, name: str, step: Callable[[], T]) -> T:
        began = time.process_time()
        result = step()
        self.milliseconds[name] = 1e3 * (time.process_time() - began)
        return result


class _FoundError(Exception):
    """Ends a search early: the first plan is there."""


def first_plan_ms(request: pb.PlanRequest) -> float:
    """CPU time from a request to the first plan that the planner hands out."""

    def stop(_: pb.Plan) -> NoReturn:
        raise _FoundError

    began = time.process_time()
    with suppress(_FoundError):
        make_plan(request, on_plan=stop)
    return 1e3 * (time.process_time() - began)


def _fixed_schedule_ms(request: pb.PlanRequest) -> float:
    began = time.process_time()
    fallback_plan(request.job, request.partition, request.batch)
    return 1e3 * (time.process_time() - began)
