"""Shows that a plan that cannot be run is refused with what is wrong, and where."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import corners
import pytest
from any_field import change_any_field
from dip.fallback import fallback_plan
from dip.partition import default_partition
from dip.planner.v1 import planner_pb2 as pb
from hypothesis import given, settings
from hypothesis import strategies as st
from mutations import PLAN_MUTATIONS
from tiny_plan import compute, split_tiny_plan, split_tiny_request, tiny_plan, tiny_request, transfer

from planner_service.check import check_plan
from planner_service.simulate import (
    BrokenActionError,
    BrokenPartsError,
    MissingTaskError,
    MissingTransferError,
    OverMemoryError,
    SimulationError,
    WaitsForItselfError,
    simulate,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def refused(spoil: Callable[[pb.Plan], object], kind: type[SimulationError]) -> tuple[int | None, int | None]:
    plan = tiny_plan()
    spoil(plan)
    with pytest.raises(kind) as error:
        simulate(tiny_request(), plan)
    assert type(error.value) is kind
    return error.value.rank, error.value.action


def delete(rank: int, action: int) -> Callable[[pb.Plan], object]:
    return lambda plan: plan.ranks[rank].actions.pop(action)


def move(rank: int, action: int, to: int) -> Callable[[pb.Plan], object]:
    return lambda plan: plan.ranks[rank].actions.insert(to, plan.ranks[rank].actions.pop(action))


def test_what_is_missing_is_named() -> None:
    assert refused(delete(0, 2), MissingTaskError) == (0, None)
    assert refused(delete(1, 3), MissingTaskError) == (1, None)
    assert refused(delete(0, 3), MissingTransferError) == (0, 2)
    assert refused(delete(1, 1), MissingTransferError) == (1, 1)
    assert refused(delete(0, 4), MissingTransferError) == (0, 5)


def test_a_rank_that_waits_for_ever_is_named_with_the_action() -> None:
    # its own forward comes after its backward
    assert refused(move(1, 3, 2), WaitsForItselfError) == (1, 2)
    # the receive comes after the compute that needs it
    assert refused(move(1, 0, 2), WaitsForItselfError) == (1, 1)
    # what is sent is not made yet
    assert refused(move(0, 1, 0), WaitsForItselfError) == (0, 0)
    # the other image is sent only after a backward that waits for what both images give
    assert refused(move(0, 3, 6), WaitsForItselfError) == (0, 5)


def test_two_ranks_that_wait_for_each_other() -> None:
    request = tiny_request()
    plan = tiny_plan()
    moved = plan.ranks[0].actions.pop(2)
    plan.ranks[0].actions.pop(2)
    plan.ranks[0].actions.extend([moved, transfer(pb.ACTION_KIND_SEND_ACTIVATION, 1, 1, 30, 39)])
    with pytest.raises(WaitsForItselfError, match="waits for action 4 of rank 1, which is never reached") as error:
        simulate(request, plan)
    assert (error.value.rank, error.value.action) == (0, 4)


def test_actions_that_do_not_belong() -> None:
    def twice(plan: pb.Plan) -> None:
        plan.ranks[0].actions.append(compute(pb.ACTION_KIND_BACKWARD, 1, 0, 0))

    def elsewhere(plan: pb.Plan) -> None:
        plan.ranks[1].actions.append(compute(pb.ACTION_KIND_BACKWARD, 1, 0, 0))

    def halves(plan: pb.Plan) -> None:
        plan.ranks[1].actions[3].kind = pb.ACTION_KIND_BACKWARD_INPUT

    def lean_backward(plan: pb.Plan) -> None:
        plan.ranks[1].actions[3].strategies.add(name="recompute", num_layers=1)

    def unknown_way(plan: pb.Plan) -> None:
        plan.ranks[1].actions[2].strategies.add(name="forget", num_layers=1)

    def two_layers(plan: pb.Plan) -> None:
        plan.ranks[1].actions[2].strategies.add(name="recompute", num_layers=2)

    def other_peer(plan: pb.Plan) -> None:
        plan.ranks[0].actions[1].peer = 0

    def sent_twice(plan: pb.Plan) -> None:
        plan.ranks[0].actions.append(transfer(pb.ACTION_KIND_SEND_ACTIVATION, 0, 1, 0, 0))

    def nobody_needs(plan: pb.Plan) -> None:
        plan.ranks[0].actions[1].kind = pb.ACTION_KIND_SEND_GRADIENT

    def unknown_kind(plan: pb.Plan) -> None:
        plan.ranks[0].actions[0].kind = pb.ACTION_KIND_UNSPECIFIED

    assert refused(twice, BrokenActionError) == (0, 8)
    assert refused(elsewhere, BrokenActionError) == (1, 6)
    assert refused(halves, BrokenActionError) == (1, 3)
    assert refused(lean_backward, BrokenActionError) == (1, 3)
    assert refused(unknown_way, BrokenActionError) == (1, 2)
    assert refused(two_layers, BrokenActionError) == (1, 2)
    assert refused(other_peer, BrokenActionError) == (0, 1)
    assert refused(sent_twice, BrokenActionError) == (0, 8)
    assert refused(nobody_needs, BrokenActionError) == (0, 1)
    assert refused(unknown_kind, BrokenActionError) == (0, 0)


def test_a_weight_half_needs_its_input_half_and_no_whole_backward() -> None:
    plan = split_tiny_plan()
    plan.ranks[1].actions[3].kind = pb.ACTION_KIND_BACKWARD
    with pytest.raises(BrokenActionError, match="weight half of a backward that is whole"):
        simulate(split_tiny_request(), plan)
    plan = split_tiny_plan()
    plan.ranks[1].actions.pop()
    with pytest.raises(MissingTaskError, match="weight half"):
        simulate(split_tiny_request(), plan)


def test_parts_that_do_not_cover_the_work() -> None:
    assert refused(lambda plan: plan.partition.chunks.pop(), BrokenPartsError) == (None, None)
    assert refused(lambda plan: plan.sub_microbatches.pop(), BrokenPartsError) == (None, None)
    assert refused(lambda plan: plan.sub_microbatches[0].instances.pop(), BrokenPartsError) == (None, None)
    assert refused(lambda plan: plan.ranks.pop(), SimulationError) == (None, None)


def test_a_rank_over_its_memory_is_named_with_the_action_that_is_too_much() -> None:
    request = tiny_request()
    request.job.cluster.memory_bytes[:] = [399, 600]
    with pytest.raises(OverMemoryError) as error:
        simulate(request, tiny_plan())
    assert (error.value.rank, error.value.action) == (0, 2)
    assert (error.value.held_bytes, error.value.limit_bytes) == (400, 399)
    request.job.cluster.memory_bytes[:] = [400, 199]
    with pytest.raises(OverMemoryError) as error:
        simulate(request, tiny_plan())
    assert (error.value.rank, error.value.action, error.value.held_bytes) == (1, None, 200)


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(("two_encoders", "split_backward", "frozen_encoder_after_a_trainable_module")),
    seed=st.integers(0, 2**32),
    changes=st.integers(1, 4),
)
def test_a_spoiled_plan_runs_or_is_refused(name: str, seed: int, changes: int) -> None:
    """What the checker accepts runs, and as long as it says; nothing else happens to what it does not."""
    request, rng = corners.FITTING[name](), random.Random(seed)
    plan = fallback_plan(request.job, default_partition(request.job, request.batch), request.batch)
    for _ in range(changes):
        mutation = rng.choice([*PLAN_MUTATIONS.values(), None])
        if mutation is None:
            change_any_field(plan, rng)
        else:
            mutation(plan, rng)
    checked = check_plan(request, plan)
    try:
        found = simulate(request, plan)
    except SimulationError:
        assert checked.faults
        return
    if not checked.faults:
        assert checked.figures is not None
        assert found.makespan_us == checked.figures.makespan_us
        assert found.peak_bytes == checked.figures.peak_memory_bytes
