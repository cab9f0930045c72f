"""Shows that a transfer never holds up compute that does not need it."""

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

if TYPE_CHECKING:
    from pipelines.processes import Workers

STEPS = 3
TEXTS, TEXT_S = 12, 0.03


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
