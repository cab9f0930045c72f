"""Random batches and training runs of the tiny models, and the comparison with ordinary training."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from dip.planner.v1 import planner_pb2 as pb
from pipelines.models import Reference, TinyBatch, TinyModel, Trace
from pipelines.plans import random_partition, random_plan
from pipelines.training import Case, Step

from planner_service.planning import make_partition, make_plan

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from pipelines.models import Sizes
    from pipelines.training import RankTrace

TOLERANCE = 1e-9


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
    split: float | None = None,
    strategies: Sequence[str] = ("recompute",),
) -> Case:
    """A run over the batches (of each replica for each step), with a random plan for each or with none.

    Where ``split`` is given, the job allows split backwards, and that share of them is.
    """
    spec = model.spec(
        ranks,
        replicas=len(batches[0]),
        seed=draw.randrange(100),
        split_backward=split is not None,
        strategies=strategies,
    )
    partition = random_partition(draw, spec)

    def step(batch: TinyBatch) -> Step:
        if fallback:
            return Step(batch=batch, plan=None)
        metadata = batch.metadata()
        plan = random_plan(draw, spec, partition, metadata, recompute=recompute, split=split or 0.0)
        return Step(batch=batch, plan=plan)

    return Case(
        name=name,
        model=model,
        spec=spec,
        partition=partition,
        steps=[[step(batch) for batch in of_replica] for of_replica in batches],
    )


def planned_case(
    draw: random.Random,
    name: str,
    model: TinyModel,
    ranks: int,
    batches: Sequence[Sequence[TinyBatch]],
    *,
    split: bool = False,
) -> Case:
    """A run whose partition and plans the planner made."""
    spec = model.spec(ranks, replicas=len(batches[0]), seed=draw.randrange(100), split_backward=split)
    spec.options.max_evaluations = 200
    partition = make_partition(spec, batches[0][0].metadata())
    steps: list[list[Step]] = []
    for of_replica in batches:
        steps.append([])
        for batch in of_replica:
            request = pb.PlanRequest(job=spec, batch=batch.metadata(), partition=partition)
            steps[-1].append(Step(batch=batch, plan=make_plan(request, seed=1)))
    return Case(name=name, model=model, spec=spec, partition=partition, steps=steps)


def falls_back(case: Case, step: Step) -> bool:
    """Whether the ranks have no plan that they agree on."""
    return step.plan is None or bool(step.other_plans) or bool(case.first_iterations)


def check(case: Case, traces: Sequence[RankTrace]) -> None:
    """Compare what all ranks saw with ordinary training."""
    batches = [[step.batch for step in of_replica] for of_replica in case.steps]
    expected = Reference(case.model).train(batches, accumulate=case.accumulate)
    for replica in range(case.replicas):
        mine = traces[replica * case.ranks : (replica + 1) * case.ranks]
        found = Trace(gradients=[{} for _ in case.steps])
        for rank, trace in enumerate(mine):
            np.testing.assert_allclose(trace.losses, expected.losses, rtol=TOLERANCE, err_msg=f"{case.name}, {rank}")
            assert trace.fallbacks == [falls_back(case, of_replica[replica]) for of_replica in case.steps], case.name
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
