"""Shows that no plan, however spoiled, makes the check raise, and that spoiled times and transfers are found."""

from __future__ import annotations

import random
from functools import cache

import corners
import pytest
from any_field import change_any_field
from dip.fallback import fallback_plan
from dip.partition import default_partition
from dip.planner.v1 import planner_pb2 as pb
from hypothesis import given, settings
from hypothesis import strategies as st
from mutations import PLAN_MUTATIONS

from planner_service.check import check_plan

NAMES = ("two_encoders", "split_backward_in_little_memory", "frozen_encoder_after_a_trainable_module", "one_rank")

# Mutations that always break a rule, where they find something to change at all.
ALWAYS_FAULTY = (
    "drop_action",
    "double_action",
    "move_action_to_another_rank",
    "change_chunk",
    "change_sub_microbatch",
    "change_peer",
    "drop_rank",
    "drop_chunk",
    "drop_sub_microbatch",
    "double_sub_microbatch",
    "change_instance",
    "change_makespan",
)


@cache
def planned(name: str) -> tuple[pb.PlanRequest, pb.Plan]:
    request = corners.FITTING[name]()
    return request, fallback_plan(request.job, default_partition(request.job, request.batch), request.batch)


def copied(name: str) -> tuple[pb.PlanRequest, pb.Plan]:
    request, plan = planned(name)
    return request, pb.Plan.FromString(plan.SerializeToString())


@settings(max_examples=150, deadline=None)
@given(name=st.sampled_from(NAMES), seed=st.integers(0, 2**32), changes=st.integers(1, 5))
def test_any_plan_can_be_checked(name: str, seed: int, changes: int) -> None:
    (request, plan), rng = copied(name), random.Random(seed)
    for _ in range(changes):
        change_any_field(plan, rng)
    changed = plan.SerializeToString(deterministic=True)
    result = check_plan(request, plan)
    assert all(result.faults)
    assert plan.SerializeToString(deterministic=True) == changed


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mutation", ALWAYS_FAULTY)
def test_what_always_breaks_a_rule_is_always_found(mutation: str, name: str) -> None:
    for seed in range(5):
        request, plan = copied(name)
        if PLAN_MUTATIONS[mutation](plan, random.Random(seed)):
            assert check_plan(request, plan).faults, f"{mutation} with seed {seed}"
