"""Shows that 1F1B plans are valid, that each rank has 1F1B's order, and that what cannot be run so is refused."""

from __future__ import annotations

import cases
import corners
import pytest
from dip.errors import CannotFitError
from dip.planner.v1 import planner_pb2 as pb

from planner_service.baselines import latency_balanced_partition, one_f_one_b
from planner_service.check import check_plan

COMPUTE = {pb.ACTION_KIND_FORWARD: "F", pb.ACTION_KIND_BACKWARD: "B"}


def planned(request: pb.PlanRequest) -> pb.Plan:
    partition = latency_balanced_partition(request.job, request.batch)
    return one_f_one_b(request.job, request.batch, partition)


NO_ROOM = "split_backward_in_little_memory"


@pytest.mark.parametrize("name", [name for name in corners.FITTING if name != NO_ROOM])
def test_plans_are_valid(name: str) -> None:
    request = corners.FITTING[name]()
    request.ClearField("partition")
    # wishes that the usual schedule knows nothing of
    request.job.options.sub_microbatch_units.clear()
    request.job.options.segments.clear()
    plan = planned(request)
    result = check_plan(request, plan)
    assert result.faults == ()
    assert result.warnings == ()


def test_each_rank_fills_then_alternates_then_drains() -> None:
    request = cases.request(cases.job([cases.module("language", layers=6)], ranks=3), _texts(5))
    plan = planned(request)
    subs = {sub.id: sub.microbatch for sub in plan.sub_microbatches}
    found = [
        " ".join(f"{COMPUTE[a.kind]}{subs[a.sub_microbatch]}" for a in schedule.actions if a.kind in COMPUTE)
        for schedule in plan.ranks
    ]
    assert found == [
        "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4",
        "F0 F1 B0 F2 B1 F3 B2 F4 B3 B4",
        "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4",
    ]


def test_a_microbatch_is_one_stage_a_rank_whatever_modules_it_holds() -> None:
    request = corners.seven_microbatches_on_four_ranks()
    plan = planned(request)
    keys = [(sub.microbatch, sub.module) for sub in plan.sub_microbatches]
    assert len(set(keys)) == len(keys)
    for schedule in plan.ranks:
        held = sorted({(c.module, c.index) for c in plan.partition.chunks if c.rank == schedule.rank})
        subs = {sub.id: sub.microbatch for sub in plan.sub_microbatches}
        stages: list[tuple[int, int]] = []
        for action in schedule.actions:
            if action.kind in COMPUTE:
                stage = action.kind, subs[action.sub_microbatch]
                if not stages or stages[-1] != stage:
                    stages.append(stage)
        assert held
        assert len(set(stages)) == len(stages)  # no stage is taken up again after another


def test_little_memory_makes_layers_lean_and_none_is_refused() -> None:
    request = cases.request(cases.job([cases.module("language", layers=4)], ranks=2), _texts(4))
    peaks = [schedule.peak_memory_bytes for schedule in planned(request).ranks]
    static = 2 * cases.STATIC_BYTES
    request.job.cluster.memory_bytes[:] = [static + (max(peaks) - static) // 2]
    plan = planned(request)
    assert any(action.strategies for schedule in plan.ranks for action in schedule.actions)
    assert check_plan(request, plan).faults == ()
    request.job.cluster.memory_bytes[:] = [1]
    with pytest.raises(CannotFitError) as refused:
        planned(request)
    assert refused.value.available_bytes == 1
    with pytest.raises(CannotFitError):
        planned(corners.FITTING[NO_ROOM]())


def test_a_partition_that_is_no_chain_is_refused() -> None:
    request = corners.three_ranks()
    partition = latency_balanced_partition(request.job, request.batch)
    for chunk in partition.chunks:
        chunk.rank = 2 - chunk.rank
    with pytest.raises(ValueError, match="must never go down"):
        one_f_one_b(request.job, request.batch, partition)


def _texts(number: int) -> list[list[cases.Sample]]:
    return [[{"language": [64]}] for _ in range(number)]
