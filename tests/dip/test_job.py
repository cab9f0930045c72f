"""A specification looked up: values for each rank, who feeds whom, who trains, what a hop takes."""

from __future__ import annotations

import pytest
from cases import job, module
from dip.job import Job
from dip.planner.v1 import planner_pb2 as pb


@pytest.mark.parametrize(
    ("given", "expected"), [([], (0, 0, 0)), ([7], (7, 7, 7)), ([1, 0, 3], (1, 0, 3))], ids=["none", "one", "each"]
)
def test_memory_is_given_for_none_for_all_or_for_each(given: list[int], expected: tuple[int, ...]) -> None:
    made = Job.from_spec(job(ranks=3, memory_bytes=given))
    assert made.memory_bytes == expected
    assert made.speed == (1.0, 1.0, 1.0)


def test_speeds_are_per_rank() -> None:
    assert Job.from_spec(job(ranks=2, rank_speed=[0.5, 2.0])).speed == (0.5, 2.0)
    assert Job.from_spec(job(ranks=2, rank_speed=[0.5])).speed == (0.5, 0.5)


@pytest.mark.parametrize(
    ("latency", "bandwidth", "size", "expected"),
    [(5, 10, 0, 5), (5, 10, 1, 6), (5, 10, 10, 6), (5, 10, 11, 7), (5, 0, 10**9, 5), (0, 1, 3, 3), (0, 0, 3, 0)],
)
def test_a_hop_takes_latency_and_whole_microseconds_of_bandwidth(
    latency: int, bandwidth: int, size: int, expected: int
) -> None:
    spec = job()
    spec.cluster.link_latency_us, spec.cluster.link_bytes_per_us = latency, bandwidth
    assert Job.from_spec(spec).hop_us(size) == expected


def test_modules_know_their_neighbours_and_whether_they_train() -> None:
    modules = [
        module("frozen first", 1, frozen=True),
        module("adapter", 1, inputs=["frozen first"]),
        module("frozen later", 1, inputs=["adapter"], frozen=True),
        module("frozen beside", 1, frozen=True),
        module("loss", 1, inputs=["frozen later", "frozen beside"], frozen=True),
    ]
    made = Job.from_spec(job(modules))
    assert [m.trains for m in made.modules] == [False, True, True, False, True]
    assert [m.inputs for m in made.modules] == [(), (0,), (1,), (), (2, 3)]
    assert [m.consumers for m in made.modules] == [(1,), (2,), (4,), (4,), ()]
    assert made.module_index == {m.name: i for i, m in enumerate(modules)}


def test_results_are_as_large_as_outputs_where_not_said_otherwise() -> None:
    made = Job.from_spec(job([module("a", 1, result_bytes_per_unit=16), module("b", 1, inputs=["a"])]))
    assert [(m.output_bytes, m.result_bytes) for m in made.modules] == [(64, 16), (64, 64)]


def test_runs_of_a_range_of_layers() -> None:
    cost = module("x", 1).layers[0].cost
    runs = [pb.LayerRun(count=count, cost=cost, static_bytes=size) for count, size in ((2, 10), (3, 100), (1, 1000))]
    view = Job.from_spec(job([pb.Module(name="m", layers=runs)])).modules[0]
    assert view.num_layers == 6
    assert [(run.start, run.stop) for run in view.runs] == [(0, 2), (2, 5), (5, 6)]
    assert [(run.start, inside) for run, inside in view.runs_of(1, 3)] == [(0, 1), (2, 2)]
    assert [(run.start, inside) for run, inside in view.runs_of(2, 3)] == [(2, 3)]
    assert view.static_bytes(1, 5) == 10 + 300 + 1000


def test_what_options_ask_for_is_found_by_module() -> None:
    made = Job.from_spec(job(segments={"language": 2}, sub_microbatch_units={"vision": 128}, split_backward=True))
    assert made.segments == {1: 2}
    assert [m.max_units for m in made.modules] == [128, 0]
    assert made.split_backward
