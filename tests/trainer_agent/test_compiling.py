"""Shows that a rank runs valid plans only: each way to break one is found on its rank before the first action."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from dip.job import Job
from dip.lowering import Phase
from dip.planner.v1 import planner_pb2 as pb
from pipelines.cases import random_batch
from pipelines.models import TinyModel, TinyModule
from pipelines.plans import random_partition, random_plan

from trainer_agent.compiling import Compiler
from trainer_agent.errors import PlanError
from trainer_agent.plans import RankPlan
from trainer_agent.program import ComputeStep, TransferStep

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_agent.program import Program

MODEL = TinyModel(
    modules=(
        TinyModule(name="vision", layers=3, frozen=True),
        TinyModule(name="audio", layers=2),
        TinyModule(name="language", inputs=("vision", "audio"), layers=4),
    )
)
INPUT, WEIGHT = pb.ACTION_KIND_BACKWARD_INPUT, pb.ACTION_KIND_BACKWARD_WEIGHT
SEND, RECV = pb.ACTION_KIND_SEND_ACTIVATION, pb.ACTION_KIND_RECV_ACTIVATION


def compiled(
    seed: int,
    rank: int,
    change: Callable[[pb.Plan, pb.Batch], None] | None = None,
    model: TinyModel = MODEL,
    *,
    split: bool = False,
) -> Program:
    """Compile one rank's part of a random plan on two ranks, after a change."""
    draw = random.Random(seed)
    spec = model.spec(2, split_backward=split)
    partition = random_partition(draw, spec)
    batch = random_batch(draw, model, 3).metadata()
    plan = random_plan(draw, spec, partition, batch)
    loaded = pb.Partition()
    loaded.CopyFrom(partition)
    if change is not None:
        change(plan, batch)
    compiler = Compiler(job=Job.from_spec(spec), partition=loaded, rank=rank, hand_offs=model.hand_offs())
    return compiler.compile(RankPlan.of(plan, batch, rank=rank, iteration=3))


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_every_random_plan_compiles_on_every_rank(seed: int, split: bool) -> None:
    for rank in range(2):
        compiled(seed, rank, split=split)


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_no_valid_plan_survives_the_loss_or_the_doubling_of_any_action(seed: int, split: bool) -> None:
    draw = random.Random(seed)

    def lose(plan: pb.Plan, batch: pb.Batch) -> None:
        del plan.ranks[0].actions[draw.randrange(len(plan.ranks[0].actions))]

    def double(plan: pb.Plan, batch: pb.Batch) -> None:
        plan.ranks[0].actions.append(draw.choice(plan.ranks[0].actions))

    for change in (lose, double):
        with pytest.raises(PlanError, match="rank 0"):
            compiled(seed, 0, change, split=split)


@pytest.mark.parametrize("seed", range(12))
def test_no_valid_plan_survives_a_send_or_a_backward_that_moves_to_the_front(seed: int) -> None:
    """Nor a receive that moves to the end: each stands where its rule puts it."""
    moved = 0
    for kind, front in ((SEND, True), (pb.ACTION_KIND_BACKWARD, True), (RECV, False)):

        def move(plan: pb.Plan, batch: pb.Batch, kind: int = kind, front: bool = front) -> None:
            nonlocal moved
            actions = plan.ranks[0].actions
            chosen = next((n for n, action in enumerate(actions) if action.kind == kind), None)
            if chosen is None:
                raise PlanError(rank=0, fault="nothing to move")
            action = pb.Action()
            action.CopyFrom(actions[chosen])
            del actions[chosen]
            actions.insert(0 if front else len(actions), action)
            moved += 1

        with pytest.raises(PlanError, match="rank 0"):
            compiled(seed, 0, move)
    assert moved


def first(plan: pb.Plan, *kinds: int) -> pb.Action:
    return next(action for action in plan.ranks[0].actions if action.kind in kinds)


def half_backward(plan: pb.Plan, batch: pb.Batch) -> None:
    first(plan, pb.ACTION_KIND_BACKWARD).kind = pb.ACTION_KIND_BACKWARD_INPUT


def unknown_kind(plan: pb.Plan, batch: pb.Batch) -> None:
    plan.ranks[0].actions[0].kind = 99


def unknown_strategy(plan: pb.Plan, batch: pb.Batch) -> None:
    first(plan, pb.ACTION_KIND_FORWARD).strategies[0].name = "mine"


def too_many_strategies(plan: pb.Plan, batch: pb.Batch) -> None:
    first(plan, pb.ACTION_KIND_FORWARD).strategies[0].num_layers += 1


def other_strategies_backward(plan: pb.Plan, batch: pb.Batch) -> None:
    run = first(plan, pb.ACTION_KIND_BACKWARD).strategies[0]
    run.name = "store" if run.name == "recompute" else "recompute"


def wrong_peer(plan: pb.Plan, batch: pb.Batch) -> None:
    first(plan, SEND, RECV).peer = 0


def wrong_direction(plan: pb.Plan, batch: pb.Batch) -> None:
    action = first(plan, SEND, RECV)
    action.kind = RECV if action.kind == SEND else SEND


def other_consumer(plan: pb.Plan, batch: pb.Batch) -> None:
    first(plan, SEND, RECV).consumer_sub_microbatch = 99


def other_chunk(plan: pb.Plan, batch: pb.Batch) -> None:
    first(plan, pb.ACTION_KIND_FORWARD).chunk = 9


def moved_layer(plan: pb.Plan, batch: pb.Batch) -> None:
    plan.partition.chunks[0].rank = 1 - plan.partition.chunks[0].rank


def other_sizes(plan: pb.Plan, batch: pb.Batch) -> None:
    plan.sub_microbatches[0].instances[0].units += 1


def lost_instance(plan: pb.Plan, batch: pb.Batch) -> None:
    batch.microbatches[0].samples[0].instances["language"].units.append(3)


def same_id(plan: pb.Plan, batch: pb.Batch) -> None:
    plan.sub_microbatches[0].id = plan.sub_microbatches[1].id


def unknown_module(plan: pb.Plan, batch: pb.Batch) -> None:
    plan.sub_microbatches[0].module = "video"


def evaluation(plan: pb.Plan, batch: pb.Batch) -> None:
    batch.forward_only = True


def other_rank(plan: pb.Plan, batch: pb.Batch) -> None:
    plan.ranks[0].rank, plan.ranks[1].rank = 1, 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (half_backward, "is split; options.split_backward of the job is false"),
        (unknown_kind, "no such kind of action"),
        (unknown_strategy, r"\['mine'\]; this executor runs \['store', 'recompute', 'offload'\]"),
        (too_many_strategies, "the chunk has"),
        (other_strategies_backward, "not those of the forward"),
        (wrong_peer, "the peer is 0"),
        (wrong_direction, "goes from rank"),
        (other_consumer, "nothing on this rank needs"),
        (other_chunk, "no such chunk"),
        (moved_layer, "another partition"),
        (other_sizes, "units in the plan"),
        (lost_instance, "no sub-microbatch holds 1 of the instances"),
        (same_id, "have the same id"),
        (unknown_module, "no module 'video'"),
        (evaluation, "no transfer|compute actions|nothing on this rank needs"),
        (other_rank, "the schedule is of rank|no such chunk"),
    ],
)
def test_each_fault_is_named(change: Callable[[pb.Plan, pb.Batch], None], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        compiled(4, 0, change)


def weight_half_first(plan: pb.Plan, batch: pb.Batch) -> None:
    """Swap the halves of one backward, in front of what sends its gradients."""
    actions = plan.ranks[0].actions
    cells = {(a.module, a.chunk, a.sub_microbatch) for a in actions if a.kind == WEIGHT}
    for action in actions:
        if action.kind in (INPUT, WEIGHT) and (action.module, action.chunk, action.sub_microbatch) == min(cells):
            action.kind = INPUT + WEIGHT - action.kind
            if action.kind == WEIGHT:
                del action.strategies[:]
            else:
                (forward,) = (
                    a
                    for a in actions
                    if a.kind == pb.ACTION_KIND_FORWARD
                    and (a.module, a.chunk, a.sub_microbatch) == (action.module, action.chunk, action.sub_microbatch)
                )
                action.strategies.extend(forward.strategies)


def strategies_of_a_weight_half(plan: pb.Plan, batch: pb.Batch) -> None:
    first(plan, WEIGHT).strategies.add(name="store", num_layers=1)


def whole_and_half(plan: pb.Plan, batch: pb.Batch) -> None:
    half = first(plan, WEIGHT)
    half.kind = pb.ACTION_KIND_BACKWARD
    half.strategies.extend(
        next(
            a
            for a in plan.ranks[0].actions
            if a.kind == INPUT
            and (a.module, a.chunk, a.sub_microbatch) == (half.module, half.chunk, half.sub_microbatch)
        ).strategies
    )


def gradient_after_the_weight_half(plan: pb.Plan, batch: pb.Batch) -> None:
    """Put a send of a gradient behind another compute than the input half that makes it."""
    actions = plan.ranks[0].actions
    position = next(n for n, action in enumerate(actions) if action.kind == pb.ACTION_KIND_SEND_GRADIENT)
    send = pb.Action()
    send.CopyFrom(actions[position])
    del actions[position]
    actions.append(send)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (weight_half_first, "the weight half of .* stands before its input half"),
        (strategies_of_a_weight_half, "states strategies; the weight half has none"),
        (whole_and_half, "no weight half of"),
        (gradient_after_the_weight_half, "does not stand right after what makes it"),
    ],
)
def test_each_fault_of_a_split_plan_is_named(change: Callable[[pb.Plan, pb.Batch], None], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        compiled(4, 0, change, split=True)


def test_billions_of_layers_in_a_few_bytes_are_refused_at_once() -> None:
    def claim(plan: pb.Plan, batch: pb.Batch) -> None:
        for action in plan.ranks[0].actions:
            if action.kind == pb.ACTION_KIND_FORWARD:
                del action.strategies[:]
                action.strategies.add(name="store", num_layers=2**31 - 1)

    with pytest.raises(PlanError, match="strategies for more layers"):
        compiled(0, 0, claim)


def test_halves_of_a_frozen_module_are_the_input_half_alone() -> None:
    model = replace(MODEL, modules=(MODEL.modules[1], replace(MODEL.modules[2], inputs=("audio",), frozen=True)))
    phases = {
        step.work.phases
        for seed in range(6)
        for step in compiled(seed, 0, model=model, split=True).steps
        if isinstance(step, ComputeStep) and step.work.cell.module == "language"
    }
    assert phases == {(Phase.FORWARD, Phase.BACKWARD), (Phase.FORWARD, Phase.BACKWARD_INPUT)}


def test_a_frozen_module_gets_no_gradient_and_sends_results_that_need_none() -> None:
    for seed in range(6):
        for rank in range(2):
            program = compiled(seed, rank)
            for step in program.steps:
                if isinstance(step, ComputeStep) and step.work.cell.module == "vision":
                    assert step.phase == Phase.FORWARD
                if isinstance(step, TransferStep) and step.parcel.gradient:
                    assert step.parcel.target.module != "vision"


def test_shapes_follow_from_the_instances_that_travel() -> None:
    """Between modules: the instances whose sample is consumed, with the rows of the result; inside: all, whole."""
    model = replace(MODEL, modules=(replace(MODEL.modules[0], merge=3), *MODEL.modules[1:]))
    seen = 0
    for seed in range(6):
        for step in compiled(seed, 0, model=model).steps:
            if not isinstance(step, ComputeStep):
                continue
            samples = {instance.sample for instance in step.work.instances}
            for edge in step.work.inputs:
                inside = edge.producer.module == edge.consumer.module
                merge = 3 if edge.producer.module == "vision" and not inside else 1
                assert edge.rows == tuple(-(-instance.units // merge) for instance in edge.instances)
                assert edge.shape == (sum(edge.rows), 4 if inside else 3)
                assert {instance.sample for instance in edge.instances} <= samples
                seen += not inside
    assert seen
