"""Shows that PyTorch's orders are taken from its classes as they are, and make valid plans."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import cases
import corners
import pytest
from dip.errors import CannotFitError
from dip.lowering import Phase
from hypothesis import given, settings
from hypothesis import strategies as st
from random_requests import plan_requests
from torch.distributed.pipelining import schedules

from benchmarks.torch_orders import TORCH_BASELINES, torch_table
from planner_service.baselines.interleaved import interleaved_1f1b
from planner_service.baselines.order_table import Step
from planner_service.check import check_plan
from planner_service.check.workload import workload_request
from planner_service.simulate import simulate

if TYPE_CHECKING:
    from dip.planner.v1 import planner_pb2 as pb

CLASSES = (
    schedules.ScheduleInterleaved1F1B,
    schedules.ScheduleInterleavedZeroBubble,
    schedules.ScheduleZBVZeroBubble,
    schedules.ScheduleDualPipeV,
)
F, B, INPUT, WEIGHT = Phase.FORWARD, Phase.BACKWARD, Phase.BACKWARD_INPUT, Phase.BACKWARD_WEIGHT


@pytest.mark.parametrize("schedule", CLASSES)
@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("microbatches", [1, 2, 3, 7, 8, 11])
def test_every_microbatch_passes_every_stage_once(schedule: type, ranks: int, microbatches: int) -> None:
    table = torch_table(ranks, microbatches, schedule=schedule)
    for rank, of_rank in enumerate(table.steps):
        assert {table.placement[step.stage] for step in of_rank} == {rank}
    steps = [step for of_rank in table.steps for step in of_rank]
    assert len(set(steps)) == len(steps)
    passes = {(stage, m) for stage in range(2 * ranks) for m in range(microbatches)}
    assert {(s.stage, s.microbatch) for s in steps if s.phase == F} == passes
    assert {(s.stage, s.microbatch) for s in steps if s.phase in (B, INPUT)} == passes
    halved = {(s.stage, s.microbatch) for s in steps if s.phase == INPUT}
    assert {(s.stage, s.microbatch) for s in steps if s.phase == WEIGHT} == halved
    split_all = schedule in (schedules.ScheduleInterleavedZeroBubble, schedules.ScheduleZBVZeroBubble)
    split_none = schedule is schedules.ScheduleInterleaved1F1B
    assert not split_all or halved == passes
    assert not split_none or not halved


def test_stages_lie_where_the_class_wants_them() -> None:
    loop, v = (0, 1, 2, 3, 0, 1, 2, 3), (0, 1, 2, 3, 3, 2, 1, 0)
    assert [torch_table(4, 8, schedule=schedule).placement for schedule in CLASSES] == [loop, loop, v, v]


def test_an_overlapped_pair_runs_in_turn() -> None:
    # DualPipeV on two ranks, four microbatches: the middle of rank 0 overlaps a forward with a backward
    steps = torch_table(2, 4, schedule=schedules.ScheduleDualPipeV).steps[0]
    assert steps[:8] == (
        Step(F, 0, 0),
        Step(F, 0, 1),
        Step(F, 0, 2),
        Step(F, 3, 0),
        Step(INPUT, 3, 0),
        Step(WEIGHT, 3, 0),
        Step(F, 3, 1),
        Step(F, 0, 3),
    )
    assert steps[8:10] == (Step(B, 3, 1), Step(F, 3, 2))


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
@pytest.mark.parametrize("microbatches", [1, 3, 8, 16])
def test_our_interleaved_order_is_theirs(ranks: int, microbatches: int) -> None:
    if microbatches % max(1, microbatches // ranks):
        pytest.skip("their class refuses these")
    ours = interleaved_1f1b(ranks, microbatches, stages_of_rank=2)
    assert torch_table(ranks, microbatches, schedule=schedules.ScheduleInterleaved1F1B) == ours


@pytest.mark.parametrize("config", ["vlm-s", "vlm-l", "t2v-l"])
@pytest.mark.parametrize("name", TORCH_BASELINES)
def test_plans_of_the_set_ups_are_valid(name: str, config: str) -> None:
    baseline, request = TORCH_BASELINES[name], workload_request(config, 10)
    plan, asked = baseline(request), baseline.asked(request)
    assert check_plan(asked, plan).faults == ()
    assert simulate(asked, plan).makespan_us == plan.makespan_us
    assert asked.job.options.split_backward == (name != "torch-interleaved-1f1b")


@pytest.mark.parametrize("name", TORCH_BASELINES)
@settings(max_examples=15, deadline=None)
@given(st.data())
def test_plans_of_requests_of_any_shape_are_valid(name: str, data: st.DataObject) -> None:
    baseline, request = TORCH_BASELINES[name], data.draw(plan_requests())
    try:
        plan = baseline(request)
    except CannotFitError:
        assert any(request.job.cluster.memory_bytes)
        return
    checked = check_plan(baseline.asked(request), plan)
    assert checked.faults == ()
    assert checked.warnings == ()


def test_whole_backwards_are_taken_where_halves_do_not_fit() -> None:
    """Recomputed layers hold everything again between halves."""
    request = corners.one_module()
    baseline = TORCH_BASELINES["torch-zbv-zero-bubble"]
    roomy = baseline(request)
    assert {INPUT, WEIGHT} <= _kinds(roomy)
    assert B not in _kinds(roomy)
    static = max(_static_bytes(roomy))
    peak = max(schedule.peak_memory_bytes for schedule in roomy.ranks)
    request.job.cluster.memory_bytes[:] = [static + (peak - static) // 4]
    tight = baseline(request)
    assert B in _kinds(tight)
    for schedule in tight.ranks:
        for action in schedule.actions:
            if action.kind == B:
                assert any(run.name != "store" for run in action.strategies)


def _kinds(plan: pb.Plan) -> set[int]:
    return {action.kind for schedule in plan.ranks for action in schedule.actions}


def _static_bytes(plan: pb.Plan) -> list[int]:
    held = [0] * len(plan.ranks)
    for chunk in plan.partition.chunks:
        held[chunk.rank] += chunk.num_layers * cases.STATIC_BYTES
    return held


def test_a_class_that_takes_no_microbatches_is_an_error() -> None:
    class Refuses:
        def __init__(self, *_args: object, **_kwargs: object) -> None:
            raise ValueError("no")

    with pytest.raises(ValueError, match="Refuses takes no 3 microbatches on 2 ranks"):
        partial(torch_table, schedule=Refuses)(2, 3)
