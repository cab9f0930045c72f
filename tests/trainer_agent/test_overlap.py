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
from pipelines.scripted import measured_us
from pipelines.training import Case, Step

from planner_service.planning import make_plan

if TYPE_CHECKING:
    from pipelines.processes import Workers

STEPS = 3
TEXTS, TEXT_S = 12, 0.03
PHASE_S, MICROBATCHES = 0.05, 3


def images_needed_late() -> Case:
    """Rank 0 makes one image's result at once; rank 1 has 360 ms of texts to do before it needs it."""
    model = TinyModel(
        modules=(
            TinyModule(name="vision", layers=1),
            TinyModule(name="language", inputs=("vision",), layers=1, sleep_s=TEXT_S),
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
    steps = [[Step(batch=batch, plan=plan)] for _ in range(STEPS)]
    return Case(name="overlap", model=model, spec=spec, partition=partition, steps=steps)


def test_a_late_transfer_adds_nothing_while_other_compute_is_ready(workers: Workers) -> None:
    """200 ms late: below 20 ms more. 600 ms late, longer than there is other compute, it does show."""
    case = images_needed_late()
    # Whatever else runs on the machine only adds: the quickest step tells.
    prompt, late, too_late = (min(workers.run(measured_us, 2, case, delay_s)[0]) for delay_s in (0.0, 0.2, 0.6))
    assert prompt >= TEXTS * TEXT_S * 1e6
    assert late - prompt < 20_000
    assert too_late - prompt > 100_000


def one_layer_a_rank(*, split: bool) -> Case:
    """Two layers on two ranks, each phase of which takes 50 ms, on three microbatches."""
    module = TinyModule(name="language", layers=2, sleep_s=PHASE_S, half_backward_sleep_s=PHASE_S)
    model = TinyModel(modules=(module,))
    spec, partition = model.spec(2, split_backward=split, strategies=()), pb.Partition()
    phase_us, units = 1e6 * PHASE_S, 4
    del spec.model.modules[0].layers[0].cost.points[:]
    spec.model.modules[0].layers[0].cost.points.add(
        units=units, forward_us=phase_us, backward_input_us=phase_us, backward_weight_us=phase_us
    )
    for rank in range(2):
        partition.chunks.add(module="language", index=rank, rank=rank, first_layer=rank, num_layers=1)
    batch = TinyBatch(seed=1, microbatches=(({"language": [units]},),) * MICROBATCHES)
    request = pb.PlanRequest(job=spec, batch=batch.metadata(), partition=partition)
    plan = make_plan(request, budget_ms=200, seed=1)
    steps = [[Step(batch=batch, plan=plan)] for _ in range(STEPS)]
    return Case(name=f"split {split}", model=model, spec=spec, partition=partition, steps=steps)


def test_weight_halves_fill_what_would_be_idle(workers: Workers) -> None:
    """Three microbatches of 150 ms on two ranks: 600 ms as a whole, 500 ms split, planned and measured."""
    planned, measured = [], []
    for split in (False, True):
        case = one_layer_a_rank(split=split)
        plan = case.steps[0][0].plan
        assert plan is not None
        planned.append(plan.makespan_us)
        measured.append(min(workers.run(measured_us, 2, case, 0.0)[0]))
    phase_us = 1e6 * PHASE_S
    assert planned[0] - planned[1] > 1.9 * phase_us
    assert measured[0] - measured[1] > 1.5 * phase_us
    assert measured[1] >= MICROBATCHES * 3 * phase_us
