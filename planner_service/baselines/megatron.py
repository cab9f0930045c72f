"""Megatron-LM: all layers in one chain, cut into P * v stages of about equal weights, interleaved 1F1B.

It balances parameters, as launch scripts that know nothing of the data do, not time.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from dip.job import Job

from planner_service.baselines.chain import chain_bytes, cut_chain, place_stages
from planner_service.baselines.drafts import Candidate
from planner_service.baselines.order_table import table_orders

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dip.planner.v1 import planner_pb2 as pb

    from planner_service.baselines.order_table import TableMaker


def weight_balanced(spec: pb.JobSpec, _batch: pb.Batch, make_table: TableMaker) -> Iterator[Candidate]:
    """Yield the one candidate: stages of about equal static bytes (of layers, where they have none)."""
    job = Job.from_spec(spec)
    placement = make_table(job.ranks, 1).placement
    sizes = [float(size) for size in chain_bytes(job)]
    if not any(sizes):
        sizes = [1.0] * len(sizes)
    stages = place_stages(job, cut_chain([sizes] * len(placement)), placement)
    order = partial(table_orders, stage_of=stages.stage_of, make_table=make_table)
    yield Candidate(partition=stages.partition, order=order)
