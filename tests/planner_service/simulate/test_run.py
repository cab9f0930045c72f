"""Shows that plans run in virtual time as worked out by hand, and as the plan checker says, whatever their order."""

from __future__ import annotations

import random

import corners
import pytest
from dip.errors import InvalidRequestError
from dip.fallback import fallback_plan
from dip.partition import default_partition
from dip.planner.v1 import planner_pb2 as pb
from hypothesis import given, settings
from hypothesis import strategies as st
from lines_run import lines_run
from random_orders import random_plan
from random_requests import partitions, plan_requests
from tiny_plan import MAKESPAN_US, PEAKS, split_tiny_plan, split_tiny_request, tiny_plan, tiny_request

from planner_service.baselines import latency_balanced_partition, one_f_one_b
from planner_service.check import check_plan
from planner_service.check.workload import workload_request
from planner_service.simulate import simulate


def test_the_plan_worked_out_by_hand() -> None:
    found = simulate(tiny_request(), tiny_plan())
    assert found.makespan_us == MAKESPAN_US
    assert found.peak_bytes == PEAKS
    assert [(task.start_us, task.end_us) for task in found.tasks] == [
        (0, 10),
        (10, 30),
        (206, 236),
        (236, 296),
        (39, 79),
        (79, 199),
    ]


def test_halves_of_a_backward_worked_out_by_hand() -> None:
    found = simulate(split_tiny_request(), split_tiny_plan())
    assert found.makespan_us == MAKESPAN_US - 40
    assert found.peak_bytes == (400, 800)


def test_the_times_that_a_plan_states_do_not_count() -> None:
    plan = tiny_plan()
    for schedule in plan.ranks:
        for action in schedule.actions:
            action.start_us, action.end_us = 7, 7
    plan.makespan_us = 1
    assert simulate(tiny_request(), plan) == simulate(tiny_request(), tiny_plan())


def test_strategies_say_the_same_in_many_ways() -> None:
    plan = tiny_plan()
    plan.ranks[1].actions[2].strategies.add(name="store", num_layers=1)
    plan.ranks[1].actions[3].strategies.add(name="recompute", num_layers=0)
    assert simulate(tiny_request(), plan) == simulate(tiny_request(), tiny_plan())


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_random_plans_take_and_hold_what_the_checker_says(data: st.DataObject) -> None:
    request = data.draw(plan_requests())
    request.job.options.sub_microbatch_units.clear()
    request.partition.CopyFrom(data.draw(partitions(request.job)))
    plan = random_plan(request, random.Random(data.draw(st.integers(0, 2**32))))
    checked = check_plan(request, plan)
    assert checked.faults == ()
    assert checked.figures is not None
    found = simulate(request, plan)
    assert found.makespan_us == checked.figures.makespan_us
    assert found.peak_bytes == checked.figures.peak_memory_bytes
    stated = [
        (action.start_us, action.end_us)
        for schedule in plan.ranks
        for action in schedule.actions
        if action.kind <= pb.ACTION_KIND_BACKWARD_WEIGHT
    ]
    assert [(task.start_us, task.end_us) for task in found.tasks] == stated


@pytest.mark.parametrize("name", corners.FITTING)
def test_every_corner_of_the_contract_runs(name: str) -> None:
    request = corners.FITTING[name]()
    loaded = request.partition if request.partition.chunks else default_partition(request.job, request.batch)
    plan = fallback_plan(request.job, loaded, request.batch)
    found = simulate(request, plan)
    assert found.makespan_us == plan.makespan_us
    assert found.peak_bytes == tuple(schedule.peak_memory_bytes for schedule in plan.ranks)


def test_a_receive_that_comes_late_holds_the_data_up() -> None:
    plan = tiny_plan()
    second = plan.ranks[1].actions
    send_back = [action for action in second if action.kind == pb.ACTION_KIND_SEND_GRADIENT]
    # rank 0 comes to its receive of the first gradient only after it has run something else
    first = plan.ranks[0].actions
    moved = pb.Action()
    moved.CopyFrom(first[4])
    del first[4]
    first.insert(6, moved)
    swapped = pb.Action()
    swapped.CopyFrom(first[5])
    first[5].CopyFrom(first[7])
    first[7].CopyFrom(swapped)
    assert len(send_back) == 2
    found = simulate(tiny_request(), plan)
    # the second image's backward runs 208..268, then the receive is issued, and its hop takes 7
    assert [(task.start_us, task.end_us) for task in found.tasks if task.rank == 0][2:] == [(208, 268), (275, 305)]


def test_an_invalid_request_is_refused() -> None:
    with pytest.raises(InvalidRequestError):
        simulate(pb.PlanRequest(), tiny_plan())


def test_work_grows_with_the_tasks_and_no_faster() -> None:
    def took_for_each_task(microbatches: int) -> float:
        request = workload_request("vlm-s", microbatches)
        request.job.cluster.memory_bytes[:] = []
        plan = one_f_one_b(request.job, request.batch, latency_balanced_partition(request.job, request.batch))
        return lines_run(lambda: simulate(request, plan)) / len(simulate(request, plan).tasks)

    assert took_for_each_task(320) < 1.5 * took_for_each_task(40)
