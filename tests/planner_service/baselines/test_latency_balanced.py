"""Shows that the chain of layers is cut by latency, and by bytes as far as memory asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cases
import corners
import pytest
from dip.job import Job
from dip.validation import validate_partition

from planner_service.baselines.latency_balanced import latency_balanced_partition, latency_balanced_stages

if TYPE_CHECKING:
    from dip.planner.v1 import planner_pb2 as pb


@pytest.mark.parametrize("name", corners.FITTING)
def test_partitions_are_valid_chains_with_at_most_one_chunk_of_a_module_on_a_rank(name: str) -> None:
    request = corners.FITTING[name]()
    request.job.options.segments.clear()  # a wish that this partition knows nothing of
    partition = latency_balanced_partition(request.job, request.batch)
    validate_partition(request.job, partition)
    ranks = [chunk.rank for chunk in partition.chunks]
    assert ranks == sorted(ranks)
    assert len({(chunk.module, chunk.rank) for chunk in partition.chunks}) == len(ranks)


def test_a_heavy_encoder_takes_more_ranks_than_a_light_one() -> None:
    heavy = cases.job(
        [cases.module("vision", layers=4), cases.module("language", layers=4, inputs=["vision"])], ranks=2
    )
    pictures = cases.batch([[{"vision": [4000], "language": [10]}]])
    texts = cases.batch([[{"vision": [10], "language": [4000]}]])
    assert _layers_on(latency_balanced_partition(heavy, pictures), "vision", 0) < 4
    assert _layers_on(latency_balanced_partition(heavy, texts), "vision", 0) == 4
    assert _layers_on(latency_balanced_partition(heavy, texts), "language", 0) > 0


def _layers_on(partition: pb.Partition, module: str, rank: int) -> int:
    return sum(c.num_layers for c in partition.chunks if (c.module, c.rank) == (module, rank))


def test_bytes_count_as_much_as_they_are_told_to() -> None:
    modules = [cases.module("vision", layers=8, us_per_unit=4.0), cases.module("language", layers=8, inputs=["vision"])]
    job = Job.from_spec(cases.job(modules, ranks=2))
    batch = cases.batch([[{"vision": [1000], "language": [10]}]])
    ends = [
        sum(c.num_layers for c in latency_balanced_stages(job, batch, (0, 1), share).partition.chunks if c.rank == 0)
        for share in (0.0, 0.5, 1.0)
    ]
    assert ends[0] < ends[1] < ends[2] == 8  # all layers have the same bytes


def test_ranks_with_less_memory_get_fewer_bytes() -> None:
    spec = cases.job([cases.module("language", layers=12)], ranks=2, memory_bytes=[20_000_000, 40_000_000])
    stages = latency_balanced_stages(Job.from_spec(spec), None, (0, 1), 1.0)
    assert [chunk.num_layers for chunk in stages.partition.chunks] == [4, 8]


def test_stages_in_a_v_meet_on_the_last_rank() -> None:
    request = corners.one_module()
    stages = latency_balanced_stages(Job.from_spec(request.job), request.batch, (0, 1, 2, 3, 3, 2, 1, 0))
    validate_partition(request.job, stages.partition)
    assert [chunk.rank for chunk in stages.partition.chunks] == [0, 1, 2, 3, 3, 2, 1, 0]
    assert stages.stage_of == ((0, 1, 2, 3, 4, 5, 6, 7),)
