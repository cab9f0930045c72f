"""Shows that transfers never hold up compute that does not need them, and that weight halves fill idle time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dip.job import Job
from dip.lowering import Phase, Task, lower
from dip.parts import group_parts
from dip.planner.v1 import planner_pb2 as pb
from dip.work import Work, chunks_of
from pipelines.models import TinyBatch, TinyModel, TinyModule
from pipelines.plans import ordered
from pipelines.scripted import computed, step_with_held_activations
from pipelines.training import Case, Step

from planner_service.planning import make_plan

if TYPE_CHECKING:
    from pathlib import Path

    from pipelines.processes import Workers

TEXTS, MICROBATCHES, PHASE_US = 12, 3, 50_000


def images_needed_late() -> Case:
    """Rank 0 makes one image's result at once; rank 1 has twelve texts to go through before it needs it."""
    model = TinyModel(
        modules=(
            TinyModule(name="vision", layers=1),
            TinyModule(name="language", inputs=("vision",), layers=1),
        )
    )
    spec, partition = model.spec(2), pb.Partition()
    for rank, module in enumerate(model.modules):
        partition.chunks.add(module=module.name, index=0, rank=rank, first_layer=0, num_layers=1)
    microbatches = (({"vision": [4], "language": [4]},), *(({"language": [4]},) for _ in range(TEXTS)))
    batch = TinyBatch(seed=1, microbatches=microbatches)
    metadata, job = batch.metadata(), Job.from_spec(spec)
    parts = group_parts(job, metadata, [[[0]]] * len(microbatches))
    work = Work(job=job, forward_only=False, chunks=chunks_of(job, partition), parts=parts)

    def texts_first(ready: list[Task]) -> int:
        def rank(index: int) -> tuple[bool, bool]:
            phase, cell = ready[index]
            part = work.parts[work.cell_part[cell]]
            return phase == Phase.BACKWARD, part.module == 1 and part.microbatch == 0

        return min(range(len(ready)), key=rank)

    plan = lower(
        work,
        batch=metadata,
        partition=partition,
        orders=ordered(work, texts_first),
        ways=[()] * work.num_cells,
        lower_bound_us=1,
    )
    steps = [[Step(batch=batch, plan=plan)]]
    return Case(name="overlap", model=model, spec=spec, partition=partition, steps=steps)


def test_a_transfer_holds_up_no_compute_that_does_not_need_it(workers: Workers, tmp_path: Path) -> None:
    """It does not leave before all texts went forward; what would wait for it earlier would wait for ever."""
    _, ran = workers.run(step_with_held_activations, 2, images_needed_late(), TEXTS, str(tmp_path))
    assert ran == [False] * TEXTS + [True]


def one_layer_a_rank(*, split: bool) -> Case:
    """Two layers on two ranks, each phase of which takes as long, on three microbatches."""
    module = TinyModule(name="language", layers=2, notes=True)
    model = TinyModel(modules=(module,))
    spec, partition = model.spec(2, split_backward=split, strategies=()), pb.Partition()
    units = 4
    del spec.model.modules[0].layers[0].cost.points[:]
    spec.model.modules[0].layers[0].cost.points.add(
        units=units, forward_us=PHASE_US, backward_input_us=PHASE_US, backward_weight_us=PHASE_US
    )
    for rank in range(2):
        partition.chunks.add(module="language", index=rank, rank=rank, first_layer=rank, num_layers=1)
    batch = TinyBatch(seed=1, microbatches=(({"language": [units]},),) * MICROBATCHES)
    request = pb.PlanRequest(job=spec, batch=batch.metadata(), partition=partition)
    request.job.options.max_evaluations = 2000
    plan = make_plan(request, seed=1)
    steps = [[Step(batch=batch, plan=plan)]]
    return Case(name=f"split {split}", model=model, spec=spec, partition=partition, steps=steps)


COMPUTED = {
    pb.ACTION_KIND_FORWARD: ["forward"],
    pb.ACTION_KIND_BACKWARD: ["input", "weight"],
    pb.ACTION_KIND_BACKWARD_INPUT: ["input"],
    pb.ACTION_KIND_BACKWARD_WEIGHT: ["weight"],
}


def test_weight_halves_fill_what_would_be_idle(workers: Workers) -> None:
    """Three microbatches of three phases on two ranks: 12 phases as a whole, 10 split; and halves run where planned."""
    plans = []
    for split in (False, True):
        case = one_layer_a_rank(split=split)
        plan = case.steps[0][0].plan
        assert plan is not None
        plans.append(plan)
        _, ran = workers.run(computed, 2, case)
        told = [COMPUTED[action.kind] for action in plan.ranks[1].actions if action.kind in COMPUTED]
        assert split == (["weight"] in told)
        assert len(ran) == 3 * MICROBATCHES
        for expected in told:
            found, ran = ran[: len(expected)], ran[len(expected) :]
            assert sorted(found) == expected
    assert plans[0].makespan_us - plans[1].makespan_us > 1.9 * PHASE_US
