"""Each module in segments of its own over all ranks: what Optimus does, and the first step of the DIP paper."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import TYPE_CHECKING

from dip.job import Job
from dip.partition import batch_load, cut, layer_times_us, partition_message, slots_of

from planner_service.baselines.chain import Stages, cut_chain
from planner_service.baselines.drafts import Candidate
from planner_service.baselines.interleaved import interleaved_1f1b
from planner_service.baselines.order_table import table_orders

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dip.planner.v1 import planner_pb2 as pb

MOST_SEGMENTS = 2
"""Segments of one module that are tried."""

MOST_CHOICES = 16
"""Choices of segments that are tried; where there are more, only those that are the same for all modules."""


def separated_interleaved(spec: pb.JobSpec, batch: pb.Batch) -> Iterator[Candidate]:
    """Candidates in Megatron-LM's interleaved order with each segment as one more stage of every rank."""
    job = Job.from_spec(spec)
    for segments in _segment_choices(job):
        for stages in separated_stages(job, batch, segments):
            make_table = partial(interleaved_1f1b, stages_of_rank=sum(segments))
            order = partial(table_orders, stage_of=stages.stage_of, make_table=make_table)
            yield Candidate(partition=stages.partition, order=order)


def _segment_choices(job: Job) -> list[tuple[int, ...]]:
    """Segments of each module; a module with fewer layers than two segments need has one."""
    most = [MOST_SEGMENTS if module.num_layers >= MOST_SEGMENTS * job.ranks else 1 for module in job.modules]
    choices = list(product(*(range(1, many + 1) for many in most)))
    if len(choices) <= MOST_CHOICES:
        return choices
    return [tuple(min(many, same) for many in most) for same in range(1, MOST_SEGMENTS + 1)]


def separated_stages(job: Job, batch: pb.Batch, segments: Sequence[int]) -> list[Stages]:
    """Two partitions with so many segments a module: each module even by itself, and all of them even together.

    A stage is one segment's chunk on one rank, numbered along the modules; segment k of those before and r of P ranks
    make stage ``k P + r``. A module with fewer layers than ranks leaves ranks out.
    """
    loads = [batch_load(module, batch) for module in job.modules]
    ranks = [slots_of(job, module, many) for module, many in zip(job.modules, segments, strict=True)]
    together = cut(job, loads, ranks)
    alone: dict[int, list[tuple[int, int]]] = {}
    for module, load, placed in zip(job.modules, loads, ranks, strict=True):
        times = layer_times_us(module, load)
        ends = cut_chain([[t / job.speed[r] for t in times] for r in placed])
        sizes = [end - start for start, end in zip([0, *ends[:-1]], ends, strict=True)]
        alone[module.index] = [(r, size) for r, size in zip(placed, sizes, strict=True) if size]
    return [numbered_stages(job, partition, segments) for partition in (partition_message(job, alone), together)]


def numbered_stages(job: Job, partition: pb.Partition, segments: Sequence[int]) -> Stages:
    """Number the chunks of a looped partition with so many segments a module as stages (see `separated_stages`)."""
    stage_of: list[tuple[int, ...]] = []
    before = 0
    for module, many in zip(job.modules, segments, strict=True):
        stages: list[int] = []
        loop, last = before, -1
        for chunk in (chunk for chunk in partition.chunks if chunk.module == module.name):
            loop += chunk.rank <= last
            last = chunk.rank
            stages.append(loop * job.ranks + chunk.rank)
        stage_of.append(tuple(stages))
        before += many
    return Stages(partition=partition, stage_of=tuple(stage_of))
