"""The guess that orders choices: exact where it can be, and an answer for every job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cases import documents, job, module, request
from dip.job import Job
from dip.partition import batch_load

from planner_service.partition.choose import Chooser
from planner_service.partition.estimate import Estimator
from planner_service.search.stopping import Stopping

if TYPE_CHECKING:
    from dip.planner.v1 import planner_pb2 as pb


def estimator(spec: pb.JobSpec, batch: pb.Batch) -> Estimator:
    made = Job.from_spec(spec)
    return Estimator(made, [batch_load(m, batch) for m in made.modules], forward_only=batch.forward_only)


def plain(ranks: int, **given: list[int]) -> pb.JobSpec:
    spec = job([module("lm", 8)], ranks=ranks, **given)
    for cost in (spec.model.modules[0].layers[0].cost,):
        cost.attention.Clear()
    return spec


def test_on_one_rank_it_is_the_work() -> None:
    asked = request(plain(1), [[{"lm": [64]}]] * 3)
    assert estimator(asked.job, asked.batch).makespan_us([1], [1]) == 3 * 8 * 52 * 2.75


def test_a_ramp_of_one_task_a_rank_comes_on_top() -> None:
    asked = request(plain(4), [[{"lm": [64]}]] * 3)
    work = 3 * 8 * 52 * 2.75
    assert estimator(asked.job, asked.batch).makespan_us([4], [1]) == pytest.approx(work / 4 + 3 * work / 4 / 3)


def test_evaluation_has_no_backward() -> None:
    asked = request(plain(1), [[{"lm": [64]}]], forward_only=True)
    assert estimator(asked.job, asked.batch).makespan_us([1], [1]) == 8 * 52


def test_short_memory_costs_recompute() -> None:
    asked = request(plain(2, memory_bytes=[4_500_000]), [[{"lm": [640]}]] * 8)
    short = estimator(asked.job, asked.batch).makespan_us([2], [1])
    asked.job.cluster.memory_bytes[0] = 1 << 40
    assert estimator(asked.job, asked.batch).makespan_us([2], [1]) < short


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
