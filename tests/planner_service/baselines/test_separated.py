"""Shows that separated modules have segments of their own, numbered as stages, and share no chunk."""

from __future__ import annotations

import corners
import pytest
from dip.job import Job
from dip.validation import validate_partition

from planner_service.baselines.separated import separated_interleaved, separated_stages


@pytest.mark.parametrize("name", corners.FITTING)
def test_partitions_are_valid_and_stages_follow_the_ranks(name: str) -> None:
    request = corners.FITTING[name]()
    request.job.options.segments.clear()
    job = Job.from_spec(request.job)
    for stages in separated_stages(job, request.batch, [1] * len(job.modules)):
        validate_partition(request.job, stages.partition)
        for module, of_module in enumerate(stages.stage_of):
            chunks = [c for c in stages.partition.chunks if c.module == job.modules[module].name]
            assert [module * job.ranks + chunk.rank for chunk in chunks] == list(of_module)
            assert list(of_module) == sorted(set(of_module))


def test_segments_visit_every_rank_once_each() -> None:
    request = corners.three_ranks()
    stages = separated_stages(Job.from_spec(request.job), request.batch, [1, 2])
    for of_partition in stages:
        assert of_partition.stage_of == ((0, 1, 2), (3, 4, 5, 6, 7, 8))
        ranks = [chunk.rank for chunk in of_partition.partition.chunks if chunk.module == "language"]
        assert ranks == [0, 1, 2, 0, 1, 2]


def test_one_and_two_segments_are_tried_where_layers_allow() -> None:
    request = corners.two_layers_on_four_ranks()
    found = {len(one.partition.chunks) for one in separated_interleaved(request.job, request.batch)}
    assert found == {2 + 4, 2 + 8}
