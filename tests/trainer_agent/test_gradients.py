"""Shows that losses and gradients are those of ordinary training in one process, whatever the plan.

Random models on random partitions run random schedules, on 1 to 4 ranks and 2 replicas, in float64: every gradient of
every step and the parameters after three optimizer steps are equal to 1e-9.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from dip.planner.v1 import planner_pb2 as pb
from pipelines.cases import check, make_case, planned_case, random_batch
from pipelines.models import TinyModel, TinyModule
from pipelines.plans import random_plan
from pipelines.training import Case, Step, train_all

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipelines.processes import Workers

STEPS = 3


def encoder_and_backbone(draw: random.Random) -> TinyModel:
    return TinyModel(
        modules=(
            TinyModule(name="vision", layers=draw.randint(1, 5), width=draw.randint(2, 6), merge=draw.randint(1, 4)),
            TinyModule(name="language", inputs=("vision",), layers=draw.randint(1, 6), width=draw.randint(2, 6)),
        )
    )


def two_encoders(draw: random.Random) -> TinyModel:
    return TinyModel(
        modules=(
            TinyModule(name="vision", layers=draw.randint(1, 4), width=3, merge=2, result_width=5),
            TinyModule(name="audio", layers=draw.randint(1, 3), width=5, ignores_odd_samples=True),
            TinyModule(
                name="language",
                inputs=("vision", "audio"),
                layers=draw.randint(2, 5),
                width=4,
                ignores_odd_samples=draw.random() < 0.5,
            ),
        )
    )


def chain_with_a_shortcut(draw: random.Random) -> TinyModel:
    return TinyModel(
        modules=(
            TinyModule(name="vision", layers=draw.randint(1, 4), width=3, merge=2),
            TinyModule(name="middle", inputs=("vision",), layers=draw.randint(1, 3), width=2, merge=3, result_width=2),
            TinyModule(name="language", inputs=("vision", "middle"), layers=draw.randint(1, 4), width=5),
        )
    )


def frozen(model: TinyModel, *names: str) -> TinyModel:
    """The same model with some of its modules frozen."""
    return TinyModel(modules=tuple(replace(m, frozen=m.name in names) for m in model.modules))


def run(workers: Workers, cases: Sequence[Case]) -> None:
    """Run cases of the same number of ranks and replicas, then check each."""
    answers = workers.run(train_all, cases[0].ranks * cases[0].replicas, cases)
    for number, case in enumerate(cases):
        check(case, [of_rank[number] for of_rank in answers])


MODELS = (encoder_and_backbone, two_encoders, chain_with_a_shortcut)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_random_models_partitions_batches_and_schedules(workers: Workers, ranks: int) -> None:
    draw = random.Random(ranks)
    cases = []
    for number in range(6):
        model = MODELS[number % 3](draw)
        batches = [[random_batch(draw, model, draw.randint(1, 5))] for _ in range(STEPS)]
        cases.append(make_case(draw, f"{ranks} ranks, case {number}", model, ranks, batches))
    run(workers, cases)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_schedules_of_the_planner(workers: Workers, ranks: int) -> None:
    draw, cases = random.Random(100 + ranks), []
    for number, make in enumerate(MODELS):
        model = make(draw)
        batches = [[random_batch(draw, model, 4, bare=[draw.randrange(4)])] for _ in range(STEPS)]
        cases.append(planned_case(draw, f"planned {number} on {ranks} ranks", model, ranks, batches))
    run(workers, cases)


def split_actions(cases: Sequence[Case]) -> int:
    """Number of input halves in all plans."""
    plans = [step.plan for case in cases for of_replica in case.steps for step in of_replica if step.plan]
    actions = (action for plan in plans for rank in plan.ranks for action in rank.actions)
    return sum(action.kind == pb.ACTION_KIND_BACKWARD_INPUT for action in actions)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_split_backwards_in_any_order(workers: Workers, ranks: int) -> None:
    """All, most or some are split, weight halves stand anywhere after, and layers run in every way."""
    draw, cases = random.Random(110 + ranks), []
    for number in range(6):
        model = MODELS[number % 3](draw)
        batches = [[random_batch(draw, model, draw.randint(1, 5))] for _ in range(STEPS)]
        name, share = f"split {number} on {ranks} ranks", draw.choice((0.4, 0.8, 1.0))
        ways = ("recompute", "offload", "copied") if number % 2 else ("recompute",)
        cases.append(make_case(draw, name, model, ranks, batches, split=share, strategies=ways))
    assert split_actions(cases) > 20
    run(workers, cases)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_split_schedules_of_the_planner(workers: Workers, ranks: int) -> None:
    draw, cases = random.Random(120 + ranks), []
    for number, make in enumerate(MODELS):
        model = make(draw)
        batches = [[random_batch(draw, model, 4, bare=[draw.randrange(4)], empty=[number])] for _ in range(STEPS)]
        name = f"planned split {number} on {ranks} ranks"
        cases.append(planned_case(draw, name, model, ranks, batches, split=True))
    assert split_actions(cases) or ranks == 1
    run(workers, cases)


def test_split_backwards_of_replicas_and_in_alternation_with_the_fallback(workers: Workers) -> None:
    draw, cases = random.Random(130), []
    for number, make in enumerate(MODELS):
        model = make(draw)
        batches = [[random_batch(draw, model, draw.randint(1, 4)) for _ in range(2)] for _ in range(STEPS)]
        batches[0][1] = random_batch(draw, model, 3, bare=range(3))
        batches[1][0] = random_batch(draw, model, 2, empty=range(2))
        case = make_case(draw, f"split replicas {number}", model, 2, batches, split=0.8)
        for replica in range(2):
            case.steps[1][replica] = replace(case.steps[1][replica], plan=None)
        cases.append(case)
    run(workers, cases)


@pytest.mark.parametrize(
    "names",
    [("vision",), ("middle",), ("language",), ("vision", "middle")],
    ids="+".join,
)
def test_split_backwards_around_frozen_modules(workers: Workers, names: tuple[str, ...]) -> None:
    """A frozen module has no weight half; the first one after it that trains has no input gradient to send."""
    draw = random.Random(140)
    model = frozen(chain_with_a_shortcut(draw), *names)
    batches = [[random_batch(draw, model, 3)] for _ in range(2)]
    run(workers, [make_case(draw, f"split, frozen {names}", model, 2, batches, split=share) for share in (0.5, 1.0)])


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_split_backwards_of_layers_that_are_all_stored_or_all_lean(workers: Workers, share: float) -> None:
    draw, cases = random.Random(150), []
    for way in ("recompute", "offload"):
        model = encoder_and_backbone(draw)
        batches = [[random_batch(draw, model, 4)] for _ in range(STEPS)]
        case = make_case(draw, f"{way} {share}", model, 2, batches, recompute=share, split=0.7, strategies=(way,))
        cases.append(case)
    run(workers, cases)


@pytest.mark.parametrize("ranks", [1, 3])
def test_the_fallback_gives_the_same_gradients(workers: Workers, ranks: int) -> None:
    draw = random.Random(10 + ranks)
    cases = []
    for number, make in enumerate(MODELS):
        model = make(draw)
        batches = [[random_batch(draw, model, draw.randint(1, 5))] for _ in range(STEPS)]
        cases.append(make_case(draw, f"fallback {number}", model, ranks, batches, fallback=True))
    run(workers, cases)


def test_numbers_of_microbatches_that_ranks_do_not_divide(workers: Workers) -> None:
    """One, fewer than ranks, and seven on four ranks."""
    draw, cases = random.Random(15), []
    for microbatches in (1, 3, 7):
        model = encoder_and_backbone(draw)
        batches = [[random_batch(draw, model, microbatches)]]
        name = f"{microbatches} microbatches"
        cases.append(planned_case(draw, name, model, 4, batches))
        cases.append(make_case(draw, f"{name}, fallback", model, 4, batches, fallback=True))
    run(workers, cases)


def test_plan_and_fallback_in_alternation(workers: Workers) -> None:
    draw = random.Random(20)
    model = two_encoders(draw)
    case = make_case(draw, "alternation", model, 2, [[random_batch(draw, model, 3)] for _ in range(4)])
    case.steps[1][0] = replace(case.steps[1][0], plan=None)
    case.steps[2][0] = replace(case.steps[2][0], plan=None)
    run(workers, [case])


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_ways_to_run_layers_change_nothing(workers: Workers, share: float) -> None:
    draw, cases = random.Random(30), []
    for way in ("recompute", "offload", "copied"):
        model = chain_with_a_shortcut(draw)
        batches = [[random_batch(draw, model, 4)] for _ in range(STEPS)]
        cases.append(make_case(draw, f"{way} {share}", model, 2, batches, recompute=share, strategies=(way,)))
    run(workers, cases)


def test_text_only_and_empty_microbatches_in_every_position(workers: Workers) -> None:
    draw, cases = random.Random(40), []
    for where in ([0], [1], [3], [0, 1, 2], [0, 1, 2, 3]):
        for bare, empty in ((where, ()), ((), where)):
            model = two_encoders(draw)
            batches = [[random_batch(draw, model, 4, bare=bare, empty=empty)] for _ in range(2)]
            batches.insert(1, [random_batch(draw, model, 2)])
            cases.append(make_case(draw, f"bare {bare}, empty {empty}", model, 3, batches))
            cases.append(make_case(draw, f"fallback, bare {bare}, empty {empty}", model, 3, batches, fallback=True))
    run(workers, cases)


def test_replicas_with_other_batches_and_plans(workers: Workers) -> None:
    """One replica has no images, one has nothing at all, and each has another number of counted rows."""
    draw, cases = random.Random(50), []
    for number in range(4):
        model = MODELS[number % 3](draw)
        batches = [[random_batch(draw, model, draw.randint(1, 4)) for _ in range(2)] for _ in range(STEPS)]
        batches[0][1] = random_batch(draw, model, 3, bare=range(3))
        batches[1][0] = random_batch(draw, model, 2, empty=range(2))
        cases.append(make_case(draw, f"replicas {number}", model, 2, batches, fallback=number == 3))
    run(workers, cases)


@pytest.mark.parametrize("replicas", [1, 2])
def test_gradients_of_several_steps_add_up(workers: Workers, replicas: int) -> None:
    """What an earlier step left was added up over the replicas already; an evaluation between leaves it alone."""
    draw = random.Random(55 + replicas)
    model = two_encoders(draw)
    batches = [[random_batch(draw, model, 2) for _ in range(replicas)] for _ in range(6)]
    batches[1] = [replace(batch, forward_only=True) for batch in batches[1]]
    batches[2][0] = random_batch(draw, model, 2, bare=range(2))
    run(workers, [replace(make_case(draw, f"{replicas} replicas", model, 2, batches), accumulate=3)])


def test_a_batch_without_weight_gives_zeros_and_no_nan(workers: Workers) -> None:
    draw = random.Random(60)
    model = encoder_and_backbone(draw)
    nothing = replace(random_batch(draw, model, 3), valid=False)
    batches = [[random_batch(draw, model, 2)], [nothing], [random_batch(draw, model, 2)]]
    case = make_case(draw, "no weight", model, 2, batches)
    traces = workers.run(train_all, 2, [case])
    check(case, [trace for (trace,) in traces])
    for (trace,) in traces:
        assert trace.losses[1] == 0.0
        assert all(not gradient.any() for gradient in trace.gradients[1].values())


@pytest.mark.parametrize(
    "names",
    [("vision",), ("middle",), ("language",), ("vision", "middle"), ("vision", "middle", "language")],
    ids="+".join,
)
def test_frozen_modules(workers: Workers, names: tuple[str, ...]) -> None:
    """First, after a trainable one, at the end, and all of them: no backward where nothing before is trainable."""
    draw = random.Random(70)
    model = frozen(chain_with_a_shortcut(draw), *names)
    batches = [[random_batch(draw, model, 3)] for _ in range(2)]
    run(workers, [make_case(draw, f"frozen {names}", model, 2, batches, fallback=flag) for flag in (False, True)])


def test_evaluation_before_between_and_after_training(workers: Workers) -> None:
    draw = random.Random(80)
    model = two_encoders(draw)
    batches = []
    for forward_only in (True, False, True, True, False, True):
        batch = replace(random_batch(draw, model, 3), forward_only=forward_only)
        batches.append([batch, replace(batch, seed=1)])
    case = make_case(draw, "evaluation", model, 2, batches)
    traces = workers.run(train_all, 4, [case])
    check(case, [trace for (trace,) in traces])
    for (trace,) in traces:
        assert all(gradient is None for gradient in trace.gradients[0].values())


def test_a_rank_without_any_work(workers: Workers) -> None:
    draw = random.Random(90)
    model = encoder_and_backbone(draw)
    spec = model.spec(3)
    partition = pb.Partition()
    for rank, module in zip((0, 2), model.modules, strict=True):
        partition.chunks.add(module=module.name, index=0, rank=rank, first_layer=0, num_layers=module.layers)
    batches = [random_batch(draw, model, 2), random_batch(draw, model, 2, bare=range(2))]
    steps = [[Step(batch=b, plan=random_plan(draw, spec, partition, b.metadata()))] for b in batches]
    run(workers, [Case(name="idle rank", model=model, spec=spec, partition=partition, steps=steps)])
