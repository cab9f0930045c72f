"""Cutting modules into chunks: every layer once, every rank busy alike, for any numbers of layers and ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cases import job, module
from corners import FITTING
from dip.job import Job
from dip.partition import Load, batch_load, cut, default_partition, layer_times_us, slots_of, typical_load
from dip.planner.v1 import planner_pb2 as pb
from dip.validation import validate_partition
from dip.work import chunks_of, static_bytes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_requests import plan_requests

if TYPE_CHECKING:
    from collections.abc import Sequence

SLOW = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def plain(name: str, times: Sequence[float], *, inputs: Sequence[str] = (), static: int = 0) -> pb.Module:
    """A module with a run for each layer, of these forward times a unit, and nothing backward."""
    runs = [
        pb.LayerRun(count=1, cost=pb.LayerCost(points=[pb.CostPoint(units=1, forward_us=t)]), static_bytes=static)
        for t in times
    ]
    return pb.Module(name=name, inputs=inputs, layers=runs)


def layers_on(partition: pb.Partition, name: str) -> list[tuple[int, int]]:
    """Rank and number of layers of each chunk of a module."""
    return [(chunk.rank, chunk.num_layers) for chunk in partition.chunks if chunk.module == name]


def busy(spec: pb.JobSpec, partition: pb.Partition) -> list[float]:
    """Time of each rank for one unit of every module."""
    made = Job.from_spec(spec)
    times = [0.0] * made.ranks
    for of_module, view in zip(chunks_of(made, partition), made.modules, strict=True):
        one = layer_times_us(view, Load(sizes=((1, 1, 1),)))
        for chunk in of_module:
            inside = one[chunk.first_layer : chunk.first_layer + chunk.num_layers]
            times[chunk.rank] += sum(inside) / made.speed[chunk.rank]
    return times


@SLOW
@given(plan_requests(), st.booleans())
def test_any_partition_is_valid_and_the_same_on_every_rank(asked: pb.PlanRequest, typical: bool) -> None:
    batch = None if typical else asked.batch
    made = default_partition(asked.job, batch)
    validate_partition(asked.job, made)
    assert made == default_partition(asked.job, batch)


@pytest.mark.parametrize("name", FITTING)
def test_every_corner_of_the_contract_has_a_partition(name: str) -> None:
    asked = FITTING[name]()
    validate_partition(asked.job, default_partition(asked.job, asked.batch))


def test_layers_that_do_not_divide_are_shared_as_evenly_as_they_can_be() -> None:
    spec = job([plain("lm", [1.0] * 14)], ranks=4)
    assert sorted(count for _, count in layers_on(default_partition(spec), "lm")) == [3, 3, 4, 4]


def test_a_module_of_fewer_layers_than_ranks_goes_where_there_is_least_to_do() -> None:
    """The long module cannot be shared evenly: its lighter ranks take the short one."""
    spec = job([plain("tiny", [1.0, 1.0]), plain("lm", [1.0] * 14, inputs=["tiny"])], ranks=4)
    made = default_partition(spec)
    lighter = [rank for rank, count in layers_on(made, "lm") if count == 3]
    assert layers_on(made, "tiny") == [(rank, 1) for rank in lighter]
    assert busy(spec, made) == [4.0] * 4


def test_a_cheap_module_makes_no_rank_the_slowest() -> None:
    spec = job([plain("cheap", [0.01] * 4), plain("lm", [1.0] * 8, inputs=["cheap"])], ranks=4)
    times = busy(spec, default_partition(spec))
    assert max(times) == pytest.approx(2.01)


def test_slow_ranks_get_less() -> None:
    spec = job([plain("lm", [1.0] * 35)], ranks=4, rank_speed=[1.0, 0.5, 1.0, 1.0])
    assert layers_on(default_partition(spec), "lm") == [(0, 10), (1, 5), (2, 10), (3, 10)]


def test_one_rank_gets_everything() -> None:
    spec = job([plain("a", [1.0] * 3), plain("lm", [2.0] * 5, inputs=["a"])], ranks=1)
    made = default_partition(spec)
    assert layers_on(made, "a") == [(0, 3)]
    assert layers_on(made, "lm") == [(0, 5)]


def test_several_encoders_even_out_together() -> None:
    names = ["a", "b", "c"]
    modules = [plain(name, [1.0] * many) for name, many in zip(names, (5, 6, 7), strict=True)]
    spec = job([*modules, plain("lm", [1.0] * 14, inputs=names)], ranks=4)
    times = busy(spec, default_partition(spec))
    assert sum(times) == 32
    assert max(times) == 8


def test_segments_that_are_asked_for_visit_every_rank_once_each() -> None:
    spec = job([plain("lm", [1.0] * 13)], ranks=3, segments={"lm": 4})
    chunks = layers_on(default_partition(spec), "lm")
    assert [rank for rank, _ in chunks] == [0, 1, 2] * 4
    assert sum(count for _, count in chunks) == 13


def test_unequal_layers_are_cut_by_their_time_not_their_number() -> None:
    """A head that takes as long as six layers stands alone."""
    spec = job([plain("lm", [1.0] * 6 + [6.0])], ranks=2)
    assert layers_on(default_partition(spec), "lm") == [(0, 6), (1, 1)]


def test_static_bytes_move_layers_off_a_rank_that_is_full() -> None:
    spec = job([plain("lm", [1.0] * 8, static=100)], ranks=2, memory_bytes=[300, 1000])
    made = Job.from_spec(spec)
    partition = default_partition(spec)
    assert layers_on(partition, "lm") == [(0, 3), (1, 5)]
    assert static_bytes(made, chunks_of(made, partition)) == [300, 500]


def test_a_batch_speaks_for_the_work_of_its_modules() -> None:
    """The encoder has most of the work of this batch, so its cut comes first; without one the costs' middle counts."""
    spec = job([module("vision", 4), module("language", 4, inputs=["vision"])], ranks=2)
    view = Job.from_spec(spec).modules
    batch = pb.Batch()
    for units in ([64], [256, 64], []):
        sample = batch.microbatches.add().samples.add()
        sample.instances["language"].units.append(512)
        if units:
            sample.instances["vision"].units.extend(units)
    assert batch_load(view[0], batch) == Load(sizes=((64, 64 * 64, 1), (320, 256 * 256 + 64 * 64, 1)))
    assert batch_load(view[1], batch) == Load(sizes=((512, 512 * 512, 3),))
    assert typical_load(view[0]) == Load(sizes=((256, 256 * 256, 1),))
    assert batch_load(view[0], pb.Batch()) == typical_load(view[0])


def test_layers_take_what_their_pass_takes() -> None:
    """A frozen first module: the forward. Frozen after a trainable one: the input's gradient too."""
    modules = [
        module("first", 2, frozen=True),
        module("adapter", 2, inputs=["first"]),
        module("last", 2, inputs=["adapter"], frozen=True),
    ]
    for m in modules:
        m.layers[0].cost.attention.Clear()
    views = Job.from_spec(job(modules)).modules
    forward = 20 + 0.5 * 64
    load = Load(sizes=((64, 64 * 64, 2),))
    assert [layer_times_us(view, load) for view in views] == [
        [2 * forward] * 2,
        [2 * 2.75 * forward] * 2,
        [2 * 2 * forward] * 2,
    ]


def test_slots_go_round_the_ranks_until_layers_run_out() -> None:
    made = Job.from_spec(job([plain("lm", [1.0] * 7)], ranks=3))
    assert slots_of(made, made.modules[0], 2) == [0, 1, 2, 0, 1, 2]
    assert slots_of(made, made.modules[0], 3) == [0, 1, 2, 0, 1, 2, 0]


@settings(deadline=None)
@given(
    times=st.lists(st.floats(0.5, 2.0), min_size=1, max_size=24),
    ranks=st.integers(1, 5),
)
def test_no_chunk_is_more_than_a_layer_off_its_share(times: list[float], ranks: int) -> None:
    spec = job([plain("lm", times)], ranks=ranks)
    made = Job.from_spec(spec)
    slots = slots_of(made, made.modules[0], 1)
    partition = cut(made, [Load(sizes=((1, 1, 1),))], [slots])
    loads = [time for time in busy(spec, partition) if time]
    assert len(loads) == len(slots)
    # Counts differ by one average layer at most, and borders fall to the nearest layer.
    assert max(loads) <= sum(times) / len(slots) + 2 * max(times)
