"""The usual partition: all layers of all modules in one chain, cut into stages of about equal latency."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from dip.job import Job
from dip.validation import validate_batch, validate_job_spec

from planner_service.baselines.chain import chain_bytes, chain_times_us, cut_chain, place_stages
from planner_service.baselines.drafts import Candidate
from planner_service.baselines.order_table import table_orders

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dip.planner.v1 import planner_pb2 as pb

    from planner_service.baselines.chain import Stages
    from planner_service.baselines.order_table import TableMaker

BYTES_SHARES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0)
"""What static bytes count for beside latency, in the cuts that are tried where memory is limited."""


def latency_balanced_partition(spec: pb.JobSpec, batch: pb.Batch | None = None) -> pb.Partition:
    """Cut the chain of all layers, modules in the order of the model, into one stage a rank.

    Parameters
    ----------
    spec
        The job.
    batch
        A batch like those to come, which says how the modules' layers compare; without one every module is given
        middle-sized work.

    Returns
    -------
    Partition
        Rank r holds stage r: at most one chunk of each module, none where there are fewer layers than ranks. No
        contiguous cut has a shorter longest stage. Memory is not looked at, as in most launch scripts.

    Raises
    ------
    InvalidRequestError
        If the job or the batch breaks the contract.
    """
    validate_job_spec(spec)
    if batch is not None:
        validate_batch(spec, batch)
    job = Job.from_spec(spec)
    return latency_balanced_stages(job, batch, range(job.ranks)).partition


def latency_balanced_stages(
    job: Job, batch: pb.Batch | None, placement: Sequence[int], bytes_share: float = 0.0
) -> Stages:
    """Cut the chain into stages of about equal latency, or, as memory asks for, of about equal bytes.

    Parameters
    ----------
    job, batch
        What is trained, on what.
    placement
        Rank of each stage.
    bytes_share
        What a layer's share of the static bytes counts for, from 0 to 1; its share of the time counts for the rest.
    """
    times, sizes = chain_times_us(job, batch), chain_bytes(job)
    time_unit = (1 - bytes_share) / (sum(times) or 1.0)
    bytes_unit = bytes_share / (sum(sizes) or 1)
    room = [limit / max(job.memory_bytes) if limit else 1.0 for limit in job.memory_bytes]
    loads = [
        [t * time_unit / job.speed[r] + b * bytes_unit / room[r] for t, b in zip(times, sizes, strict=True)]
        for r in placement
    ]
    return place_stages(job, cut_chain(loads), placement)


def latency_balanced(
    spec: pb.JobSpec, batch: pb.Batch, make_table: TableMaker, *, splits_backward: bool = False
) -> Iterator[Candidate]:
    """Candidates on the latency-balanced chain in the order of a table.

    Several cuts where memory is limited; with an order that splits backwards each of them twice, as it is and with
    whole backwards where layers recompute.
    """
    job = Job.from_spec(spec)
    placement = make_table(job.ranks, max(1, len(batch.microbatches))).placement
    limited = any(job.memory_bytes)
    for share in BYTES_SHARES if limited else BYTES_SHARES[:1]:
        stages = latency_balanced_stages(job, batch, placement, share)
        order = partial(table_orders, stage_of=stages.stage_of, make_table=make_table)
        yield Candidate(partition=stages.partition, order=order)
        if limited and splits_backward:
            yield Candidate(partition=stages.partition, order=order, lean_whole=True)
