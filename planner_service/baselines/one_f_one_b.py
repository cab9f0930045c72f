"""1F1B over whole microbatches: every rank runs all that it holds of a microbatch as one stage (Narayanan et al. 2019).

Rank r runs ``P - 1 - r`` forwards to fill the pipeline, then one forward and one backward in turn, then the backwards
that are left. What a stage holds of several modules runs in the order of the chain, a backward in reverse.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from dip.job import Job
from dip.validation import validate_batch, validate_job_spec, validate_partition
from dip.work import chunks_of

from planner_service.baselines.drafts import Candidate, draw
from planner_service.baselines.interleaved import interleaved_1f1b
from planner_service.baselines.order_table import table_orders

if TYPE_CHECKING:
    from dip.lowering import Task
    from dip.planner.v1 import planner_pb2 as pb
    from dip.work import Work


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
        least, as few of them as fit.

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
    ranks = [chunk.rank for of_module in chunks_of(Job.from_spec(spec), partition) for chunk in of_module]
    if ranks != sorted(ranks):
        raise ValueError(f"partition: chunks of modules and layers in order are on ranks {ranks}; must never go down")
    return draw(spec, batch, Candidate(partition=partition, order=_orders)).plan(batch)


def _orders(work: Work) -> list[list[Task]]:
    stage_of = [[chunk.rank for chunk in of_module] for of_module in work.chunks]
    return table_orders(work, stage_of, partial(interleaved_1f1b, stages_of_rank=1))
