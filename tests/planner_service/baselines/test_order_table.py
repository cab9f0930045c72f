"""Shows that a table's steps become the tasks of what its stages hold, without those that there is no work for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cases
import corners
from dip.job import Job
from dip.lowering import Phase
from dip.work import Work, chunks_of

from planner_service.baselines.chain import place_stages
from planner_service.baselines.drafts import whole_parts
from planner_service.baselines.order_table import OrderTable, Step, table_orders

if TYPE_CHECKING:
    from dip.lowering import Task
    from dip.planner.v1 import planner_pb2 as pb

F, B, INPUT, WEIGHT = Phase.FORWARD, Phase.BACKWARD, Phase.BACKWARD_INPUT, Phase.BACKWARD_WEIGHT


def halves_table(ranks: int, microbatches: int) -> OrderTable:
    """All forwards, all input halves, all weight halves; one stage a rank."""
    steps = [
        tuple(Step(phase, rank, m) for phase in (F, INPUT, WEIGHT) for m in range(microbatches))
        for rank in range(ranks)
    ]
    return OrderTable(placement=tuple(range(ranks)), steps=tuple(steps))


def ordered(request: pb.PlanRequest, ends: list[int]) -> tuple[Work, list[list[Task]]]:
    job = Job.from_spec(request.job)
    stages = place_stages(job, ends, range(job.ranks))
    chunks = chunks_of(job, stages.partition)
    forward_only = request.batch.forward_only
    work = Work(job=job, forward_only=forward_only, chunks=chunks, parts=whole_parts(job, request.batch))
    return work, table_orders(work, stages.stage_of, halves_table)


def shown(work: Work, order: list[Task]) -> list[str]:
    names = {F: "F", B: "B", INPUT: "I", WEIGHT: "W"}
    return [f"{names[phase]} {work.module_of(c).name} {work.parts[work.cell_part[c]].microbatch}" for phase, c in order]


def test_modules_of_a_stage_run_back_to_back_and_backwards_in_reverse() -> None:
    made = cases.request(
        cases.job(ranks=1, split_backward=True), [[{"vision": [64], "language": [64]}], [{"language": [64]}]]
    )
    work, orders = ordered(made, [20])
    assert shown(work, orders[0]) == [
        "F vision 0",
        "F language 0",
        "F language 1",
        "I language 0",
        "I vision 0",
        "I language 1",
        "W language 0",
        "W vision 0",
        "W language 1",
    ]


def test_a_frozen_module_has_no_weight_half_and_none_at_all_before_what_trains() -> None:
    work, orders = ordered(corners.frozen_language_after_a_trainable_encoder(), [5, 10, 15, 20])
    assert {work.module_of(cell).name for order in orders for phase, cell in order if phase == WEIGHT} == {"vision"}
    work, orders = ordered(corners.frozen_encoder(), [5, 10, 15, 20])
    assert {work.module_of(cell).name for order in orders for phase, cell in order if phase == INPUT} == {"language"}


def test_a_batch_without_backward_or_without_work() -> None:
    _, orders = ordered(corners.forward_only(), [5, 10, 15, 20])
    assert {phase for order in orders for phase, _ in order} == {F}
    _, orders = ordered(corners.all_microbatches_empty(), [5, 10, 15, 20])
    assert orders == [[]] * 4


def test_empty_microbatches_are_not_counted() -> None:
    request = corners.empty_middle_microbatch()
    work, orders = ordered(request, [5, 10, 15, 20])
    filled = {j for j, microbatch in enumerate(request.batch.microbatches) if microbatch.samples}
    assert filled < set(range(len(request.batch.microbatches)))
    for order in orders:
        assert {work.parts[work.cell_part[cell]].microbatch for _, cell in order} == filled
