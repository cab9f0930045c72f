"""Random stage tasks, schedules of them, and what the plan checker says of those."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from dip.bounds import chain_bound_us
from dip.errors import CannotFitError
from dip.fallback import activation_room, fitting_parts
from dip.job import Job
from dip.lowering import lower
from dip.work import Work, chunks_of
from hypothesis import reject
from hypothesis import strategies as st
from random_requests import partitions, plan_requests

from planner_service.check import check_plan
from planner_service.domain.graph import task_graph
from planner_service.search.decoders import ALTERNATE, UNIFIED, Guide, decode
from planner_service.search.orders import orders_of
from planner_service.search.quick import Candidate

if TYPE_CHECKING:
    from dip.planner.v1 import planner_pb2 as pb
    from hypothesis.strategies import DrawFn

    from planner_service.domain.graph import TaskGraph
    from planner_service.search.schedule import Schedule


@dataclass(frozen=True, kw_only=True, slots=True)
class Instance:
    """A request and its stage tasks, cut into pieces as memory asks for."""

    request: pb.PlanRequest
    work: Work

    @classmethod
    def of(cls, request: pb.PlanRequest) -> Instance:
        """Stage tasks of a request that has a partition; CannotFitError where they do not fit."""
        job = Job.from_spec(request.job)
        chunks = chunks_of(job, request.partition)
        parts = fitting_parts(job, request.batch, chunks, activation_room(job, chunks))
        work = Work(job=job, forward_only=request.batch.forward_only, chunks=chunks, parts=parts)
        return cls(request=request, work=work)

    def graph(self) -> TaskGraph:
        """Arrays, with backwards split where the job allows it."""
        return task_graph(self.work, split=self.work.job.split_backward)

    def candidate(self, graph: TaskGraph, guide: Guide) -> Candidate:
        """Schedule that the decoder makes of a guide."""
        return Candidate(work=self.work, graph=graph, guide=guide, decoded=decode(graph, guide), engine="test")

    def faults(self, schedule: Schedule) -> tuple[str, ...]:
        """What the checker finds in the plan of a schedule."""
        plan = lower(
            self.work,
            batch=self.request.batch,
            partition=self.request.partition,
            orders=orders_of(schedule.graph, schedule.start),
            ways=schedule.ways,
            lower_bound_us=chain_bound_us(self.work),
        )
        shorter = () if plan.makespan_us <= schedule.makespan_us else ("the plan is longer than the schedule",)
        return (*check_plan(self.request, plan).faults, *shorter)


@st.composite
def instances(draw: DrawFn, *, limited: bool | None = None) -> Instance:
    """Stage tasks of any request that fits."""
    request = draw(plan_requests(limited=limited))
    request.partition.CopyFrom(draw(partitions(request.job)))
    try:
        made = Instance.of(request)
    except CannotFitError:
        reject()
    if not made.work.num_cells:
        reject()
    return made


def random_guide(graph: TaskGraph, seed: int) -> Guide:
    """Priorities, order of groups, rule, reserve and thrift, none of which makes sense."""
    random = np.random.default_rng(seed)
    return Guide(
        random.random(2 * graph.num_cells),
        random.permutation(len(graph.need)),
        int(random.choice([UNIFIED, ALTERNATE])),
        float(random.choice([0.0, 0.3, 0.9])),
        random.choice([0.0, 0.5]) * random.standard_normal(graph.num_cells),
        float(random.choice([0.0, 0.1, 1.0])),
        True,
    )
