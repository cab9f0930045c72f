"""Shows that every baseline's plans are valid, on the paper's set-ups and on requests of any shape."""

from __future__ import annotations

import corners
import pytest
from dip.errors import CannotFitError, InvalidRequestError
from dip.planner.v1 import planner_pb2 as pb
from hypothesis import given, settings
from hypothesis import strategies as st
from random_requests import plan_requests

from planner_service.baselines import BASELINES
from planner_service.baselines.latency_balanced import latency_balanced_partition
from planner_service.check import check_plan
from planner_service.check.workload import workload_request
from planner_service.simulate import simulate

SET_UPS = ("vlm-s", "vlm-m", "vlm-l", "t2v-s", "t2v-l")


def is_valid(name: str, request: pb.PlanRequest) -> pb.Plan:
    baseline = BASELINES[name]
    plan, asked = baseline(request), baseline.asked(request)
    checked = check_plan(asked, plan)
    assert checked.faults == ()
    assert checked.warnings == ()
    assert simulate(asked, plan).makespan_us == plan.makespan_us
    return plan


@pytest.mark.parametrize("config", SET_UPS)
@pytest.mark.parametrize("name", BASELINES)
def test_the_set_ups(name: str, config: str) -> None:
    is_valid(name, workload_request(config, 10))


@pytest.mark.parametrize("name", BASELINES)
def test_every_corner_of_the_contract(name: str) -> None:
    for corner, build in corners.FITTING.items():
        try:
            is_valid(name, build())
        except CannotFitError:
            assert corner == "split_backward_in_little_memory"


@pytest.mark.parametrize("name", BASELINES)
@settings(max_examples=15, deadline=None)
@given(st.data())
def test_requests_of_any_shape(name: str, data: st.DataObject) -> None:
    request = data.draw(plan_requests())
    before = request.SerializeToString(deterministic=True)
    try:
        is_valid(name, request)
    except CannotFitError:
        assert any(request.job.cluster.memory_bytes)
    assert request.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize("name", BASELINES)
def test_names_and_descriptions(name: str) -> None:
    baseline = BASELINES[name]
    assert baseline.name == name == name.lower()
    assert 10 < len(baseline.description) < 110
    assert "\n" not in baseline.description


@pytest.mark.parametrize("name", BASELINES)
def test_a_partition_is_chosen_for_the_batch_that_is_said_to_be_like_it(name: str) -> None:
    request, known = workload_request("vlm-m", 8, seed=1), workload_request("vlm-m", 8, mix="text").batch
    baseline = BASELINES[name]
    for_text, for_itself = baseline.plan(request, known), baseline.plan(request)
    assert check_plan(baseline.asked(request), for_text).faults == ()
    own = pb.PlanRequest(job=request.job, batch=known)
    assert for_text.partition == baseline.plan(own).partition
    assert for_text.makespan_us >= for_itself.makespan_us
    with pytest.raises(InvalidRequestError):
        baseline.plan(request, pb.Batch(microbatches=[pb.Microbatch(samples=[pb.Sample()])]))


def test_megatron_balances_weights_and_the_latency_balanced_plan_time() -> None:
    request = workload_request("vlm-s", 8)
    by_weight = BASELINES["megatron"](request)
    static = [0] * 4
    for chunk in by_weight.partition.chunks:
        module = next(m for m in request.job.model.modules if m.name == chunk.module)
        static[chunk.rank] += chunk.num_layers * module.layers[0].static_bytes
    assert max(static) < 1.1 * min(static)
    by_time = BASELINES["latency-balanced"](request)
    assert by_time.makespan_us < by_weight.makespan_us
    request.job.cluster.memory_bytes[:] = []
    unlimited = BASELINES["latency-balanced"](request)
    assert unlimited.partition == latency_balanced_partition(request.job, request.batch)


def test_a_job_without_weights_is_cut_by_layers() -> None:
    request = corners.one_module()
    request.job.model.modules[0].layers[0].static_bytes = 0
    plan = BASELINES["megatron"](request)
    assert sorted(chunk.num_layers for chunk in plan.partition.chunks) == [3, 3, 3, 4]


def test_two_stages_a_rank_shorten_what_one_leaves_idle() -> None:
    request = workload_request("t2v-s", 16)
    assert BASELINES["megatron-interleaved"](request).makespan_us < BASELINES["megatron"](request).makespan_us
