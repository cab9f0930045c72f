"""1F1B over whole microbatches: every rank runs all that it holds of a microbatch as one stage (Narayanan et al. 2019).

Rank r runs ``P - 1 - r`` forwards to fill the pipeline, then one forward and one backward in turn, then the backwards
that are left. What a stage holds of several modules runs in the order of the chain, a backward in reverse.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from dip.bounds import chain_bound_us
from dip.errors import CannotFitError
from dip.fallback import activation_room, fitting_ways
from dip.job import Job
from dip.lowering import Phase, lower, peak_bytes
from dip.parts import instances_of, make_part
from dip.validation import validate_batch, validate_job_spec, validate_partition
from dip.work import Work, chunks_of

if TYPE_CHECKING:
    from dip.lowering import Task
    from dip.planner.v1 import planner_pb2 as pb
    from dip.work import Part


def one_f_one_b(spec: pb.JobSpec, batch: pb.Batch, partition: pb.Partition) -> pb.Plan:
    """Schedule a batch by 1F1B.

    Parameters
    ----------
    spec, batch
        The job and the batch.
    partition
        A chain: along the modules and their layers, ranks never go down. `latency_balanced_partition` makes such ones.

    Returns
    -------
    Plan
        One sub-microbatch for each microbatch and module. Where memory is short, layers use the strategy that keeps
        least, as few of them as let the pipeline fill.

    Raises
    ------
    InvalidRequestError
        If an argument breaks the contract.
    ValueError
        If the partition is no chain.
    CannotFitError
        If 1F1B does not fit the memory even with all layers lean.
    """
    validate_job_spec(spec)
    validate_batch(spec, batch)
    validate_partition(spec, partition)
    job = Job.from_spec(spec)
    chunks = chunks_of(job, partition)
    _check_chain([chunk.rank for of_module in chunks for chunk in of_module])
    work = Work(job=job, forward_only=batch.forward_only, chunks=chunks, parts=whole_parts(job, batch))
    depth = min(len(batch.microbatches) or 1, job.ranks)
    ways = fitting_ways(work, activation_room(job, chunks), in_flight=depth)
    orders = one_f_one_b_orders(work)
    for rank, (peak, limit) in enumerate(zip(peak_bytes(work, orders, ways), job.memory_bytes, strict=True)):
        if limit and peak > limit:
            raise CannotFitError(rank=rank, needed_bytes=peak, available_bytes=limit)
    return lower(work, batch=batch, partition=partition, orders=orders, ways=ways, lower_bound_us=chain_bound_us(work))


def _check_chain(ranks: list[int]) -> None:
    if ranks != sorted(ranks):
        raise ValueError(f"partition: chunks of modules and layers in order are on ranks {ranks}; must never go down")


def whole_parts(job: Job, batch: pb.Batch) -> list[Part]:
    """One sub-microbatch for each microbatch and each module that it has work for."""
    parts: list[Part] = []
    for number, microbatch in enumerate(batch.microbatches):
        for module in job.modules:
            instances = instances_of(microbatch, module, range(len(microbatch.samples)))
            if instances:
                parts.append(make_part(module, number, instances))
    return parts


def one_f_one_b_orders(work: Work) -> list[list[Task]]:
    """Order of the tasks of each rank."""
    cells: dict[tuple[int, int], list[int]] = defaultdict(list)
    for cell, part in enumerate(work.cell_part):
        cells[work.parts[part].microbatch, work.cell_chunk[cell].rank].append(cell)
    microbatches = sorted({part.microbatch for part in work.parts})
    orders: list[list[Task]] = []
    for rank in range(work.job.ranks):
        forwards: list[list[Task]] = [[(Phase.FORWARD, cell) for cell in cells[m, rank]] for m in microbatches]
        backwards: list[list[Task]] = [
            [(Phase.BACKWARD, cell) for cell in reversed(cells[m, rank]) if work.has_backward(cell)]
            for m in microbatches
        ]
        ahead = work.job.ranks - 1 - rank
        orders.append(
            [
                task
                for turn in range(len(microbatches) + ahead)
                for stage in (
                    forwards[turn] if turn < len(microbatches) else [],
                    backwards[turn - ahead] if turn >= ahead else [],
                )
                for task in stage
            ]
        )
    return orders
