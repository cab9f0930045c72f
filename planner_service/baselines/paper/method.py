"""The DIP paper's method from a request to a plan: as written, or tuned by a partition and sizes that are given.

Source: "DIP: Efficient Large Multimodal Model Training with Dynamic Interleaved Pipeline" (arXiv 2504.14145). Where it
leaves something open, what is better for it is done: see the modules of this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from dip.bounds import chain_bound_us
from dip.errors import CannotFitError
from dip.fallback import activation_room, fitting_parts, leanest_ways
from dip.job import Job
from dip.listing import group_needs
from dip.lowering import lower
from dip.partition import batch_load, cut, slots_of
from dip.planner.v1 import planner_pb2 as pb
from dip.validation import validate_partition, validate_plan_request
from dip.work import Part, Work, chunks_of

from planner_service.baselines.paper.candidates import Candidates
from planner_service.baselines.paper.problem import Base
from planner_service.baselines.paper.search import PaperSearch, compile_kernels, orders_of
from planner_service.baselines.paper.segments import (
    Latency,
    equal_partition,
    latencies_us,
    module_times_us,
    segment_counts,
)
from planner_service.baselines.paper.sizes import efficient_sizes, even_parts
from planner_service.search.stopping import Stopping

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dip.lowering import Task

    from planner_service.baselines.paper.search import Found


SEARCHES = ("mcts", "random")
"""What may order the segments."""

LOOK_SECONDS = 1e6
"""Budget where schedules are counted, not seconds."""


def paper_plan(
    request: pb.PlanRequest,
    *,
    budget_ms: int,
    seed: int = 0,
    partition: pb.Partition | None = None,
    sub_microbatches: Sequence[pb.SubMicrobatch] | None = None,
    max_evaluations: int = 0,
    on_progress: Callable[[float, int], None] | None = None,
    search: str = "mcts",
) -> pb.Plan:
    """Plan one batch as the paper does; backwards are whole, on one thread.

    Parameters
    ----------
    request
        Job and batch. A partition in it is kept.
    budget_ms
        Time of the search, above 0; what comes before training (partition, compilation) and lowering are not counted.
    seed
        Of all random choices.
    partition, sub_microbatches
        "Tuned": used as they are in place of the paper's formulas.
    max_evaluations
        Schedules to try in place of a time; the same number gives the same plan. 0: by time.
    on_progress
        Called at each improvement with the seconds since the start of the search and the makespan in microseconds.
    search
        "mcts", or "random" for random orders through the same decoder.

    Raises
    ------
    InvalidRequestError
        If the request breaks the contract.
    ValueError
        If another argument does.
    CannotFitError
        If no way of the method fits the memory.
    """
    _check(request, budget_ms, partition, search)
    refused: CannotFitError | None = None
    for layout, work in _attempts(request, partition, sub_microbatches):
        try:
            activation_room(work.job, work.chunks)
        except CannotFitError as error:
            refused = refused or error
            continue
        if not work.num_cells:
            idle: list[list[Task]] = [[]] * work.job.ranks
            return lower(work, batch=request.batch, partition=layout, orders=idle, ways=[], lower_bound_us=0)
        base = Base.of(work, Candidates.of(work))
        compile_kernels(base)
        run = PaperSearch(
            base=base,
            stopping=Stopping(seconds=budget_ms / 1000, max_evaluations=max_evaluations),
            bound_us=chain_bound_us(work),
            seed=seed,
            at_random=search == "random",
            on_progress=on_progress,
        )
        found = run.run()
        if found is None:
            refused = refused or _shortage(work)
            continue
        return _lowered(request.batch, layout, run, found)
    if refused is None:
        raise RuntimeError("nothing was tried")
    raise refused


def _check(request: pb.PlanRequest, budget_ms: int, partition: pb.Partition | None, search: str) -> None:
    validate_plan_request(request)
    if search not in SEARCHES:
        raise ValueError(f"search is {search!r}; allowed are {', '.join(SEARCHES)}")
    if budget_ms <= 0:
        raise ValueError(f"budget_ms is {budget_ms}; allowed is more than 0")
    if partition is not None:
        validate_partition(request.job, partition)


def _lowered(batch: pb.Batch, layout: pb.Partition, run: PaperSearch, found: Found) -> pb.Plan:
    """Plan of what a search found."""
    report = pb.SearchReport(
        elapsed_ms=run.stopping.elapsed_ms(),
        evaluations=run.stopping.evaluations,
        optimal=found.makespan_us == run.bound_us,
    )
    for step in run.steps:
        report.steps.add(elapsed_ms=step.elapsed_ms, engine=f"paper: {step.engine}", makespan_us=step.makespan_us)
    return lower(
        run.base.work,
        batch=batch,
        partition=layout,
        orders=orders_of(run.base, found.start),
        ways=run.base.candidates.ways_of(found.chosen),
        lower_bound_us=run.bound_us,
        search=report,
    )


def _attempts(
    request: pb.PlanRequest, partition: pb.Partition | None, subs: Sequence[pb.SubMicrobatch] | None
) -> Iterator[tuple[pb.Partition, Work]]:
    """Partitions and sub-microbatches to try until one fits: what is given or the formulas', then whatever fits."""
    job, batch = Job.from_spec(request.job), request.batch
    parts = (
        parts_of(job, subs) if subs is not None else even_parts(job, batch, efficient_sizes(request.job, job, batch))
    )

    def work_of(layout: pb.Partition, made: Sequence[Part]) -> Work:
        return Work(job=job, forward_only=batch.forward_only, chunks=chunks_of(job, layout), parts=made)

    kept = partition or (request.partition if request.partition.chunks else None)
    layouts = [kept] if kept is not None else formula_partitions(job, parts, batch)
    if len(layouts) > 1:
        layouts.sort(key=lambda layout: first_come_us(work_of(layout, parts)))
    for layout in layouts:
        yield layout, work_of(layout, parts)
    if kept is None:
        loads = [batch_load(module, batch) for module in job.modules]
        slots = [slots_of(job, module, job.segments.get(module.index, 1)) for module in job.modules]
        layouts.append(cut(job, loads, slots))
    for layout in layouts if subs is None else []:
        chunks = chunks_of(job, layout)
        try:
            yield layout, work_of(layout, fitting_parts(job, batch, chunks, activation_room(job, chunks)))
        except CannotFitError:
            if layout is layouts[-1]:
                raise


def formula_partitions(job: Job, parts: Sequence[Part], batch: pb.Batch) -> list[pb.Partition]:
    """Partitions by the formula for K_i, one for each way to read it; one where both are the same."""
    times = module_times_us(job, parts, forward_only=batch.forward_only)
    layers = [module.num_layers for module in job.modules]
    made: dict[tuple[int, ...], pb.Partition] = {}
    for latency in Latency:
        counts = segment_counts(
            latencies_us(
                job, parts, latency, num_microbatches=len(batch.microbatches), forward_only=batch.forward_only
            ),
            layers,
            job.ranks,
            job.segments,
        )
        made.setdefault(tuple(counts), equal_partition(job, counts, times))
    return list(made.values())


def first_come_us(work: Work) -> int:
    """Makespan of first-come order, with the best memory ways for it; very long where it does not fit."""
    try:
        activation_room(work.job, work.chunks)
    except CannotFitError:
        return 1 << 62
    if not work.num_cells:
        return 0
    stopping = Stopping(seconds=LOOK_SECONDS, max_evaluations=1)
    found = PaperSearch(base=Base.of(work, Candidates.of(work)), stopping=stopping, bound_us=0).run()
    return found.makespan_us if found else 1 << 62


def parts_of(job: Job, subs: Sequence[pb.SubMicrobatch]) -> list[Part]:
    """Sub-microbatches of a plan, by id."""
    return [
        Part(
            module=job.module_index[sub.module],
            microbatch=sub.microbatch,
            samples=tuple(ref.sample for ref in sub.instances),
            instances=tuple(ref.index for ref in sub.instances),
            sizes=tuple(ref.units for ref in sub.instances),
        )
        for sub in sorted(subs, key=lambda sub: sub.id)
    ]


def _shortage(work: Work) -> CannotFitError:
    """What the first rank that is short needs for its largest group, alone and with every layer leanest."""
    most = np.array(group_needs(work, leanest_ways(work))).max(axis=0)
    static, limits = work.static_bytes, work.job.memory_bytes
    short = [rank for rank, limit in enumerate(limits) if limit and static[rank] + most[rank] > limit]
    rank = short[0] if short else int(np.argmax(most))
    return CannotFitError(rank=rank, needed_bytes=int(static[rank] + most[rank]), available_bytes=limits[rank])
