"""Shows that no cut of a chain has a smaller largest stage, and that stages become chunks of their modules."""

from __future__ import annotations

from itertools import combinations_with_replacement, pairwise

import cases
import corners
from dip.job import Job
from dip.validation import validate_partition
from hypothesis import given
from hypothesis import strategies as st

from planner_service.baselines.chain import chain_bytes, chain_times_us, cut_chain, place_stages


def stage_sizes(loads: list[list[float]], ends: list[int]) -> list[float]:
    return [sum(of_stage[a:b]) for of_stage, (a, b) in zip(loads, pairwise([0, *ends]), strict=True)]


@given(
    st.lists(st.integers(0, 20).map(float), min_size=1, max_size=8),
    st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=1, max_size=4),
)
def test_no_cut_has_a_smaller_largest_stage_nor_is_more_even(times: list[float], speeds: list[float]) -> None:
    loads = [[t / speed for t in times] for speed in speeds]
    ends = cut_chain(loads)
    assert len(ends) == len(speeds)
    assert ends[-1] == len(times)
    assert ends == sorted(ends)
    every = combinations_with_replacement(range(len(times) + 1), len(speeds) - 1)
    sizes = [stage_sizes(loads, [*cut, len(times)]) for cut in every]
    least = min(max(of_cut) for of_cut in sizes)
    ours = stage_sizes(loads, ends)
    assert max(ours) == least
    assert sum(s * s for s in ours) == min(sum(s * s for s in of_cut) for of_cut in sizes if max(of_cut) == least)


def test_the_chain_lists_every_layer() -> None:
    request = corners.runs_of_different_layers()
    job = Job.from_spec(request.job)
    times, sizes = chain_times_us(job, request.batch), chain_bytes(job)
    assert len(times) == len(sizes) == 5 + 11
    assert times[-1] == 0.0
    assert sizes == [cases.STATIC_BYTES] * 5 + [7] + [cases.STATIC_BYTES] * 9 + [0]


def test_a_stage_over_a_module_border_is_a_chunk_of_each() -> None:
    request = corners.three_ranks()
    job = Job.from_spec(request.job)
    stages = place_stages(job, [3, 10, 10, 20], (0, 1, 2, 0))
    validate_partition(request.job, stages.partition)
    assert [(c.module, c.index, c.rank, c.first_layer, c.num_layers) for c in stages.partition.chunks] == [
        ("vision", 0, 0, 0, 3),
        ("vision", 1, 1, 3, 5),
        ("language", 0, 1, 0, 2),
        ("language", 1, 0, 2, 10),
    ]
    assert stages.stage_of == ((0, 1), (1, 3))
