"""No schedule of 3,000 tiny random batches beats a proven bound: every order, strategy and split is tried."""

from __future__ import annotations

import random
from itertools import count, islice
from typing import TYPE_CHECKING

import numpy as np
import pytest
import tiny_plan
from dip.bounds import chain_bound_us
from dip.job import Job
from dip.work import Part
from exhaustive import shortest_us
from tiny_batches import tiny_request, work_of

from planner_service.check import check_plan
from planner_service.planning import make_plan
from planner_service.search.bounds import improved_bound_us, lower_bound_us
from planner_service.search.bounds.improved import is_refuted
from planner_service.search.bounds.tasks import fastest_tasks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dip.planner.v1 import planner_pb2 as pb
    from dip.work import Work

INSTANCES = 3000
PLANNED = 400
MOST_TASKS = 16


def planned_work(request: pb.PlanRequest, plan: pb.Plan) -> Work:
    """Stage tasks of a plan's own sub-microbatches."""
    index = Job.from_spec(request.job).module_index
    parts = [
        Part(
            module=index[sub.module],
            microbatch=sub.microbatch,
            samples=tuple(ref.sample for ref in sub.instances),
            instances=tuple(ref.index for ref in sub.instances),
            sizes=tuple(ref.units for ref in sub.instances),
        )
        for sub in plan.sub_microbatches
    ]
    return work_of(request, parts)


def tiny_instances(seed: int) -> Iterator[tuple[pb.PlanRequest, int]]:
    """Requests small enough to try everything, each with its shortest makespan."""
    for number in count():
        request = tiny_request(random.Random(seed * 1_000_003 + number))
        work = work_of(request)
        if sum(1 + work.has_backward(cell) for cell in range(work.num_cells)) > MOST_TASKS:
            continue
        shortest = shortest_us(work)
        if shortest is not None:
            yield request, shortest


def test_what_all_orders_show_is_known_where_it_was_worked_out_by_hand() -> None:
    """Two images on rank 0 into one text on rank 1; the larger first saves 2 us: F 0..20..30, 37..77, B ..197, 294."""
    request = tiny_plan.tiny_request()
    request.partition.CopyFrom(tiny_plan.tiny_plan().partition)
    assert shortest_us(planned_work(request, tiny_plan.tiny_plan())) == tiny_plan.MAKESPAN_US - 2


@pytest.mark.parametrize("seed", range(3))
def test_no_schedule_beats_a_bound(seed: int) -> None:
    tight = np.zeros(2, dtype=np.int64)
    for request, shortest in islice(tiny_instances(seed), INSTANCES // 3):
        work = work_of(request)
        assert chain_bound_us(work) <= shortest, request
        quick, improved = lower_bound_us(work), improved_bound_us(work, incumbent_us=2 * shortest)
        assert quick <= improved <= shortest, request
        assert not is_refuted(fastest_tasks(work), shortest), request
        tight += np.array([quick == shortest, improved == shortest])
    # Bounds that were far too low would pass the rest.
    assert tight[0] > INSTANCES // 3 * 2 // 3
    assert tight[1] > tight[0] + INSTANCES // 3 // 50


def test_plans_claim_no_more_than_all_orders_show() -> None:
    optimal = 0
    for request, shortest in islice(tiny_instances(7), PLANNED):
        plan = make_plan(request)
        assert not check_plan(request, plan).faults, request
        own = shortest_us(planned_work(request, plan))
        assert own == shortest  # nothing to split: one instance a module and microbatch
        assert plan.lower_bound_us <= shortest <= plan.makespan_us, request
        if plan.search.optimal:
            assert plan.makespan_us == shortest
            optimal += 1
    assert optimal > PLANNED // 2
