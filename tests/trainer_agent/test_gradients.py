"""Shows that losses and gradients are those of ordinary training in one process, whatever the plan.

Random models on random partitions run random schedules, on 1 to 4 ranks and 2 replicas, in float64: every gradient of
every step and the parameters after three optimizer steps are equal to 1e-9.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pytest
from pipelines.models import Reference, TinyBatch, TinyModel, TinyModule, Trace
from pipelines.plans import random_partition, random_plan
from pipelines.training import Case, RankTrace, Step, train_all

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipelines.models import Sizes
    from pipelines.processes import Workers

TOLERANCE = 1e-9
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
    from dataclasses import replace

    return TinyModel(modules=tuple(replace(m, frozen=m.name in names) for m in model.modules))


def random_batch(
    draw: random.Random, model: TinyModel, microbatches: int, *, bare: Sequence[int] = (), empty: Sequence[int] = ()
) -> TinyBatch:
    """Samples of any number and sizes of instances.

    Microbatches in ``bare`` have instances of the last module alone, those in ``empty`` have no samples.
    """

    def sizes(bare_one: bool) -> Sizes:
        found = {model.modules[-1].name: [draw.randint(1, 9) for _ in range(draw.randint(1, 2))]}
        for module in reversed(model.modules[:-1]):
            used = any(module.name in m.inputs and found.get(m.name) for m in model.modules)
            if not bare_one and used:
                found[module.name] = [draw.randint(1, 12) for _ in range(draw.choice((0, 1, 1, 2, 4)))]
        return found

    return TinyBatch(
        seed=draw.randrange(10**6),
        microbatches=tuple(
            () if j in empty else tuple(sizes(j in bare) for _ in range(draw.randint(1, 3)))
            for j in range(microbatches)
        ),
    )


def make_case(
    draw: random.Random,
    name: str,
    model: TinyModel,
    ranks: int,
    batches: Sequence[Sequence[TinyBatch]],
    *,
    recompute: float = 0.3,
    fallback: bool = False,
) -> Case:
    """A run over the batches (of each replica for each step), with a random plan for each or with none."""
    spec = model.spec(ranks, replicas=len(batches[0]), seed=draw.randrange(100))
    partition = random_partition(draw, spec)

    def step(batch: TinyBatch) -> Step:
        plan = None if fallback else random_plan(draw, spec, partition, batch.metadata(), recompute=recompute)
        return Step(batch=batch, plan=plan)

    return Case(
        name=name,
        model=model,
        spec=spec,
        partition=partition,
        steps=[[step(batch) for batch in of_replica] for of_replica in batches],
    )


def check(case: Case, traces: Sequence[RankTrace]) -> None:
    """Compare what all ranks saw with ordinary training."""
    expected = Reference(case.model).train([[step.batch for step in of_replica] for of_replica in case.steps])
    for replica in range(case.replicas):
        mine = traces[replica * case.ranks : (replica + 1) * case.ranks]
        found = Trace(gradients=[{} for _ in case.steps])
        for rank, trace in enumerate(mine):
            np.testing.assert_allclose(trace.losses, expected.losses, rtol=TOLERANCE, err_msg=f"{case.name}, {rank}")
            assert trace.fallbacks == [of_replica[replica].plan is None for of_replica in case.steps], case.name
            assert not found.parameters.keys() & trace.parameters.keys()
            found.parameters |= trace.parameters
            for into, gradients in zip(found.gradients, trace.gradients, strict=True):
                into |= gradients
        assert found.parameters.keys() == expected.parameters.keys()
        for step, (gradients, wanted) in enumerate(zip(found.gradients, expected.gradients, strict=True)):
            for name, gradient in wanted.items():
                assert_close(gradients[name], gradient, f"{case.name}, step {step}, gradient of {name}")
        for name, parameter in expected.parameters.items():
            assert_close(found.parameters[name], parameter, f"{case.name}, {name} at the end")


def assert_close(found: np.ndarray | None, wanted: np.ndarray | None, what: str) -> None:
    """Relative to the largest entry: a gradient whose entries cancel has rounding of the size of what cancels."""
    if found is None or wanted is None:
        assert (found is None) == (wanted is None), what
        return
    scale = np.abs(wanted).max(initial=0.0)
    assert np.abs(found - wanted).max(initial=0.0) <= TOLERANCE * scale + 1e-15, what


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
