"""From a partition and a rule of order to a plan: the shortest of some, all with as little recomputation as fits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dip.bounds import chain_bound_us
from dip.errors import CannotFitError
from dip.job import Job
from dip.lowering import lower, time_order
from dip.parts import instances_of, make_part
from dip.work import Work, chunks_of

from planner_service.baselines.recompute import fitting_choices

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dip.lowering import Task
    from dip.memory import Way
    from dip.planner.v1 import planner_pb2 as pb
    from dip.work import Part

OrderRule = Callable[[Work], "list[list[Task]]"]
"""For each rank its tasks in order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A partition, and the order in which whole microbatches run on it.

    Parameters
    ----------
    partition, order
        As it says.
    lean_whole
        Whether split backwards run whole where layers recompute.
    """

    partition: pb.Partition
    order: OrderRule
    lean_whole: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Draft:
    """A candidate on one batch, with its ways decided."""

    candidate: Candidate
    work: Work
    orders: list[list[Task]]
    ways: list[Way]
    makespan_us: int

    def plan(self, batch: pb.Batch) -> pb.Plan:
        """Lower it to a plan of the batch that it was drawn for."""
        return lower(
            self.work,
            batch=batch,
            partition=self.candidate.partition,
            orders=self.orders,
            ways=self.ways,
            lower_bound_us=chain_bound_us(self.work),
        )


def draw(spec: pb.JobSpec, batch: pb.Batch, candidate: Candidate) -> Draft:
    """Run a candidate on a batch: of the ways that fit, those that make it shortest.

    Raises
    ------
    CannotFitError
        If it does not fit even with all layers lean.
    """
    job = Job.from_spec(spec)
    chunks = chunks_of(job, candidate.partition)
    work = Work(job=job, forward_only=batch.forward_only, chunks=chunks, parts=whole_parts(job, batch))
    for rank, (held, limit) in enumerate(zip(work.static_bytes, job.memory_bytes, strict=True)):
        if limit and held > limit:
            raise CannotFitError(rank=rank, needed_bytes=held, available_bytes=limit)
    orders = candidate.order(work)
    choices = fitting_choices(work, orders, lean_whole=candidate.lean_whole)
    timed = [(time_order(work, choice.orders, choice.ways).makespan_us, choice) for choice in choices]
    makespan_us, best = min(timed, key=lambda one: one[0])
    return Draft(candidate=candidate, work=work, orders=best.orders, ways=best.ways, makespan_us=makespan_us)


def shortest(spec: pb.JobSpec, batch: pb.Batch, candidates: Iterable[Candidate]) -> Draft:
    """Draw the candidates and keep the shortest, the first of equals.

    Raises
    ------
    CannotFitError
        If none fits: of the one that needs least.
    """
    best: Draft | None = None
    shortages: list[CannotFitError] = []
    for candidate in candidates:
        try:
            drawn = draw(spec, batch, candidate)
        except CannotFitError as shortage:
            shortages.append(shortage)
            continue
        if best is None or drawn.makespan_us < best.makespan_us:
            best = drawn
    if best is None:
        raise min(shortages, key=lambda shortage: shortage.needed_bytes - shortage.available_bytes)
    return best


def whole_parts(job: Job, batch: pb.Batch) -> list[Part]:
    """One sub-microbatch for each microbatch and each module that it has work for."""
    parts: list[Part] = []
    for number, microbatch in enumerate(batch.microbatches):
        for module in job.modules:
            instances = instances_of(microbatch, module, range(len(microbatch.samples)))
            if instances:
                parts.append(make_part(module, number, instances))
    return parts
