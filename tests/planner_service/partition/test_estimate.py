"""The guess that orders choices: exact where it can be, and an answer for every job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cases import documents, job, module, request
from dip.job import Job

from planner_service.partition.choice import Choice, Shape
from planner_service.partition.choose import Chooser
from planner_service.partition.estimate import Estimator, Sizes
from planner_service.partition.trials import Trials
from planner_service.search.stopping import Stopping

if TYPE_CHECKING:
    from dip.planner.v1 import planner_pb2 as pb


def estimator(spec: pb.JobSpec, batch: pb.Batch) -> Estimator:
    made = Job.from_spec(spec)
    sizes = Trials(made, [batch], Stopping(seconds=1), None).sizes
    return Estimator(made, sizes, forward_only=batch.forward_only)


def choice(*segments: int, parts: int = 1, slices: int = 1) -> Choice:
    shapes = tuple(Shape(segments=many) for many in segments)
    return Choice(shapes=shapes, parts=(parts,) * len(segments), slices=slices)


def plain(ranks: int, **given: list[int]) -> pb.JobSpec:
    spec = job([module("lm", 8)], ranks=ranks, **given)
    for cost in (spec.model.modules[0].layers[0].cost,):
        cost.attention.Clear()
    return spec


def test_on_one_rank_it_is_the_work() -> None:
    asked = request(plain(1), [[{"lm": [64]}]] * 3)
    assert estimator(asked.job, asked.batch).makespan_us(choice(1)) == 3 * 8 * 52 * 2.75


def test_ramps_of_one_task_a_rank_come_on_top() -> None:
    asked = request(plain(4), [[{"lm": [64]}]] * 3)
    work = 3 * 8 * 52 * 2.75
    assert estimator(asked.job, asked.batch).makespan_us(choice(1)) == pytest.approx(work / 4 + 2 * 3 * work / 4 / 3)


def test_evaluation_has_no_backward() -> None:
    asked = request(plain(1), [[{"lm": [64]}]], forward_only=True)
    assert estimator(asked.job, asked.batch).makespan_us(choice(1)) == 8 * 52


def test_short_memory_costs_recompute() -> None:
    asked = request(plain(2, memory_bytes=[4_500_000]), [[{"lm": [640]}]] * 8)
    short = estimator(asked.job, asked.batch).makespan_us(choice(1))
    asked.job.cluster.memory_bytes[0] = 1 << 40
    assert estimator(asked.job, asked.batch).makespan_us(choice(1)) < short


def test_cutting_for_memory_saves_recompute_and_costs_launches() -> None:
    asked = request(plain(2, memory_bytes=[6_500_000]), [[{"lm": [320]}, {"lm": [320]}]] * 8)
    tight = estimator(asked.job, asked.batch)
    assert tight.is_tight
    assert tight.load_us(choice(1, slices=2)) > tight.load_us(choice(1))
    assert tight.makespan_us(choice(1, slices=2)) < tight.makespan_us(choice(1))


def test_layers_that_do_not_divide_make_one_rank_the_busiest() -> None:
    spec = plain(4)
    spec.model.modules[0].layers[0].count = 10
    asked = request(spec, [[{"lm": [64]}]] * 3)
    assert estimator(asked.job, asked.batch).load_us(choice(1)) == pytest.approx(3 * 52 * 2.75 * 3)


def test_small_parts_are_less_efficient() -> None:
    """A launch of 20 us for each part of a layer; 32 us for each 64 units."""
    found = estimator(plain(1), request(plain(1), [[{"lm": [64] * 4}]]).batch)
    assert found.efficiency(0, 1) == 1.0
    assert found.efficiency(0, 4) == pytest.approx((20 + 4 * 32) / (4 * (20 + 32)))


def test_groups_follow_what_microbatches_keep() -> None:
    sizes = Sizes(units=((10, 5, 0),), squares=((0, 0, 0),), group_bytes=(100, 51, 0))
    assert [sizes.num_slices(j, 4) for j in range(3)] == [4, 3, 1]
    assert [sizes.num_slices(j, 1) for j in range(3)] == [1, 1, 1]
    assert sizes.largest(0) == 10


def test_shares_add_up() -> None:
    asked = request(job(), documents(4))
    assert sum(estimator(asked.job, asked.batch).shares) == pytest.approx(1.0)


def test_a_job_of_many_modules_alike_has_an_estimate() -> None:
    """None of thirty keeps a noticeable share of the memory."""
    encoders = [module(f"encoder {i}", 2) for i in range(29)]
    spec = job([*encoders, module("lm", 2, inputs=[m.name for m in encoders])], ranks=2, memory_bytes=[100_000_000])
    asked = request(spec, [[{m.name: [64] for m in spec.model.modules}]] * 2)
    made = Chooser(Job.from_spec(spec), asked.batch, Stopping(seconds=1, max_evaluations=1))
    assert made.choose().candidate.makespan_us > 0
