"""Splitting a batch: every instance once, in its microbatch, whole, within the sizes asked for, and balanced."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import TYPE_CHECKING

import pytest
from cases import batch, job, module
from corners import FITTING
from dip.job import Job
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_requests import plan_requests

from planner_service.split.splitter import SplitTarget, Splitter

if TYPE_CHECKING:
    from dip.planner.v1 import planner_pb2 as pb
    from dip.work import Part

SLOW = settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))


def instances(asked: pb.PlanRequest) -> Counter[tuple[int, int, int, int, int]]:
    """Module, microbatch, sample, index and units of every instance."""
    index = Job.from_spec(asked.job).module_index
    return Counter(
        (index[name], j, i, k, units)
        for j, microbatch in enumerate(asked.batch.microbatches)
        for i, sample in enumerate(microbatch.samples)
        for name, held in sample.instances.items()
        for k, units in enumerate(held.units)
    )


def taken(parts: list[Part]) -> Counter[tuple[int, int, int, int, int]]:
    return Counter(
        (part.module, part.microbatch, *instance)
        for part in parts
        for instance in zip(part.samples, part.instances, part.sizes, strict=True)
    )


@SLOW
@given(plan_requests(), st.data())
def test_every_instance_is_in_one_part_of_its_microbatch(asked: pb.PlanRequest, data: st.DataObject) -> None:
    made = Job.from_spec(asked.job)
    units = data.draw(st.lists(st.integers(0, 500), min_size=len(made.modules), max_size=len(made.modules)))
    target = SplitTarget(units=tuple(units))
    parts = Splitter(made, asked.batch).split(target)
    assert taken(parts) == instances(asked)
    for part in parts:
        most = made.modules[part.module].max_units
        assert not most or part.units <= most or len(part.sizes) == 1
    assert Splitter(made, asked.batch).split(target) == parts
    order = [(part.microbatch, part.module) for part in parts]
    assert order == sorted(order)


@pytest.mark.parametrize("name", FITTING)
def test_without_targets_microbatches_stay_whole_unless_asked(name: str) -> None:
    asked = FITTING[name]()
    made = Job.from_spec(asked.job)
    parts = Splitter(made, asked.batch).split(SplitTarget(units=(0,) * len(made.modules)))
    many = Counter((part.microbatch, part.module) for part in parts)
    assert all(count == 1 for (_, m), count in many.items() if not made.modules[m].max_units)


def split(spec: pb.JobSpec, samples: list[dict[str, list[int]]], *units: int) -> list[Part]:
    return Splitter(Job.from_spec(spec), batch([samples])).split(SplitTarget(units=units))


def alone() -> pb.JobSpec:
    return job([module("lm", 4)])


def test_parts_are_as_many_as_the_target_asks_for_and_balanced() -> None:
    sizes = [90, 10, 60, 40, 50, 50]
    parts = split(alone(), [{"lm": [size]} for size in sizes], 100)
    loads = sorted(part.units for part in parts)
    best = min(
        max(sum(s for s, b in zip(sizes, bins, strict=True) if b == k) for k in range(3))
        for bins in product(range(3), repeat=6)
    )
    assert loads == [100, 100, 100]
    assert best == 100


def test_an_instance_larger_than_the_target_stands_alone() -> None:
    parts = split(alone(), [{"lm": [500]}, {"lm": [30]}, {"lm": [20]}], 100)
    assert (500,) in [part.sizes for part in parts]
    assert {part.sizes for part in parts if part.units < 500} <= {(30,), (20,), (30, 20)}


def test_a_sample_is_processed_together_in_every_module_where_that_balances() -> None:
    """Slices of samples: each text part consumes one image part, and nothing joins them."""
    spec = job([module("vision", 4), module("lm", 4, inputs=["vision"])])
    parts = split(spec, [{"vision": [100], "lm": [200]} for _ in range(4)], 100, 200)
    by_module = [{part.samples for part in parts if part.module == m} for m in range(2)]
    assert by_module[0] == by_module[1]
    assert len(by_module[0]) == 4


def test_a_module_cut_less_takes_whole_slices_together() -> None:
    spec = job([module("vision", 4), module("lm", 4, inputs=["vision"])])
    parts = split(spec, [{"vision": [100], "lm": [200]} for _ in range(4)], 200, 200)
    vision = [set(part.samples) for part in parts if part.module == 0]
    language = [set(part.samples) for part in parts if part.module == 1]
    assert [len(samples) for samples in vision] == [2, 2]
    assert len(language) == 4
    assert all(any(text <= images for images in vision) for text in language)


def test_sizes_that_are_asked_for_are_kept_whatever_the_target() -> None:
    spec = job([module("lm", 4)], sub_microbatch_units={"lm": 64})
    parts = split(spec, [{"lm": [30, 30, 30, 70, 10]}], 0)
    assert all(part.units <= 64 or part.sizes == (70,) for part in parts)
    assert sum(part.units for part in parts) == 170
    assert len(parts) == 3


def test_a_negative_target_is_refused() -> None:
    with pytest.raises(ValueError, match=r"units is \(0, -1\); allowed are 0 and more"):
        SplitTarget(units=(0, -1))
