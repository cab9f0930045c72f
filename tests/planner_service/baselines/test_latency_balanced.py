"""Shows that the chain of layers is cut into contiguous stages whose longest is as short as any cut's."""

from __future__ import annotations

from itertools import combinations_with_replacement, pairwise
from typing import TYPE_CHECKING

import cases
import pytest
from dip.validation import validate_partition
from hypothesis import given
from hypothesis import strategies as st

from planner_service.baselines.latency_balanced import cut_chain, latency_balanced_partition

if TYPE_CHECKING:
    from dip.planner.v1 import planner_pb2 as pb


def longest(times: list[float], speeds: list[float], ends: list[int]) -> float:
    return max(sum(times[a:b]) / speed for (a, b), speed in zip(pairwise([0, *ends]), speeds, strict=True))


@given(
    st.lists(st.integers(0, 20).map(float), min_size=1, max_size=8),
    st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=1, max_size=4),
)
def test_no_cut_has_a_shorter_longest_stage(times: list[float], speeds: list[float]) -> None:
    ends = cut_chain(times, speeds)
    assert len(ends) == len(speeds)
    assert ends[-1] == len(times)
    every = combinations_with_replacement(range(len(times) + 1), len(speeds) - 1)
    assert longest(times, speeds, ends) == min(longest(times, speeds, [*cut, len(times)]) for cut in every)


@pytest.mark.parametrize("name", cases.FITTING)
def test_partitions_are_valid_chains_with_at_most_one_chunk_of_a_module_on_a_rank(name: str) -> None:
    request = cases.FITTING[name]()
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
