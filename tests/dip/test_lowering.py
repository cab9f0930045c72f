"""From orders to plans: times, transfers in the contract's places, peaks by hand, and orders that cannot run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import tiny_plan
from corners import FITTING
from dip.fallback import fitting_parts
from dip.job import Job
from dip.listing import list_schedule
from dip.lowering import OrderError, Phase, lower, peak_bytes, sub_microbatch_message, task_number, time_order
from dip.partition import default_partition
from dip.planner.v1 import planner_pb2 as pb
from dip.work import Part, Work, chunks_of

from planner_service.check import check_plan

if TYPE_CHECKING:
    from dip.lowering import Task

F, B, HALF, REST = Phase.FORWARD, Phase.BACKWARD, Phase.BACKWARD_INPUT, Phase.BACKWARD_WEIGHT
RECOMPUTE = (("recompute", 1),)


def tiny_work(*, split: bool = False, frozen: bool = False) -> Work:
    """Two images on rank 0 (cells 0 and 1) into one text on rank 1 (cell 2)."""
    request = tiny_plan.tiny_request()
    request.job.options.split_backward = split
    if frozen:
        request.job.model.modules[1].frozen = True
    job = Job.from_spec(request.job)
    parts = [
        Part(module=0, microbatch=0, samples=(0,), instances=(0,), sizes=(10,)),
        Part(module=0, microbatch=0, samples=(0,), instances=(1,), sizes=(20,)),
        Part(module=1, microbatch=0, samples=(0,), instances=(0,), sizes=(40,)),
    ]
    chunks = chunks_of(job, tiny_plan.tiny_plan().partition)
    return Work(job=job, forward_only=False, chunks=chunks, parts=parts)


WHOLE: list[list[Task]] = [[(F, 0), (F, 1), (B, 0), (B, 1)], [(F, 2), (B, 2)]]
HALVES: list[list[Task]] = [
    [(F, 0), (F, 1), (HALF, 0), (REST, 0), (HALF, 1), (REST, 1)],
    [(F, 2), (HALF, 2), (REST, 2)],
]


def lowered(work: Work, orders: list[list[Task]]) -> pb.Plan:
    return lower(
        work,
        batch=tiny_plan.tiny_request().batch,
        partition=tiny_plan.tiny_plan().partition,
        orders=orders,
        ways=[()] * 3,
        lower_bound_us=200,
    )


def test_the_plan_worked_out_by_hand_comes_out_action_by_action() -> None:
    expected = tiny_plan.tiny_plan()
    made = lowered(tiny_work(), WHOLE)
    for mine, theirs in zip(made.ranks, expected.ranks, strict=True):
        assert list(mine.actions) == list(theirs.actions)
        assert mine.peak_memory_bytes == theirs.peak_memory_bytes
    assert made.makespan_us == tiny_plan.MAKESPAN_US
    assert made.digest == expected.digest


def test_times_with_split_backwards_by_hand() -> None:
    """The gradient leaves after the input half; weight halves fill the wait."""
    timing = time_order(tiny_work(split=True), HALVES, [()] * 3)
    # F2 runs 39..79, its input half takes 2 us a unit: 79..159. Gradients of 20 and 40 bytes take 7 and 9 us.
    assert timing.start_us == [0, 10, 39, 166, 196, 79, 186, 236, 159]
    assert timing.end_us == [10, 30, 79, 186, 236, 159, 196, 256, 199]
    assert timing.makespan_us == 256


def test_tasks_that_do_not_exist_have_no_times() -> None:
    timing = time_order(tiny_work(), WHOLE, [()] * 3)
    assert timing.start_us[6:] == timing.end_us[6:] == [-1] * 3
    assert [task_number(task, 3) for task in HALVES[1]] == [2, 5, 8]
    assert task_number((B, 1), 3) == task_number((HALF, 1), 3) == 4


def test_a_plan_with_split_backwards_is_valid() -> None:
    request = tiny_plan.split_tiny_request()
    assert not check_plan(request, lowered(tiny_work(split=True), HALVES)).faults


def test_peaks_by_hand() -> None:
    """Static 100 and 200; a unit keeps 10 bytes, 15 between the halves; a recomputed one 1, then 15."""
    stored = [()] * 3
    assert peak_bytes(tiny_work(), WHOLE, stored) == [100 + 300, 200 + 400]
    assert peak_bytes(tiny_work(), WHOLE, [RECOMPUTE] * 3) == [100 + 30, 200 + 40]
    # Rank 0: input half of cell 0 holds 150 in place of 100, beside the 200 of cell 1; then cell 1 alone 300.
    assert peak_bytes(tiny_work(split=True), HALVES, stored) == [100 + 350, 200 + 600]
    # Recomputed: 10 + 20, then 150 + 20, then 300.
    assert peak_bytes(tiny_work(split=True), HALVES, [RECOMPUTE] * 3) == [100 + 300, 200 + 600]
    late: list[list[Task]] = [[(F, 0), (F, 1), (HALF, 0), (HALF, 1), (REST, 0), (REST, 1)], HALVES[1]]
    assert peak_bytes(tiny_work(split=True), late, stored) == [100 + 450, 200 + 600]


def test_a_frozen_module_gives_back_its_memory_after_the_input_half() -> None:
    work = tiny_work(split=True, frozen=True)
    orders = [HALVES[0], [(F, 2), (HALF, 2)]]
    assert peak_bytes(work, orders, [()] * 3)[1] == 200 + 600
    assert time_order(work, orders, [()] * 3).makespan_us == 256


def test_what_keeps_nothing_counts_nothing() -> None:
    request = tiny_plan.tiny_request()
    work = tiny_work()
    evaluation = Work(job=work.job, forward_only=True, chunks=work.chunks, parts=work.parts)
    assert peak_bytes(evaluation, [[(F, 0), (F, 1)], [(F, 2)]], [()] * 3) == [100, 200]
    request.batch.forward_only = True
    assert time_order(evaluation, [[(F, 0), (F, 1)], [(F, 2)]], [()] * 3).makespan_us == 79


@pytest.mark.parametrize(
    ("orders", "message"),
    [
        ([[(B, 0), (F, 0), (F, 1), (B, 1)], [(F, 2), (B, 2)]], "waits for itself"),
        ([[(F, 0), (B, 0), (F, 1), (B, 1)], [(F, 2), (B, 2)]], "waits for itself: 5 tasks never start"),
        ([[(F, 0), (F, 1), (B, 0), (B, 1)], [(B, 2)]], "rank 1 misses FORWARD of cell 2"),
        ([[(F, 0), (F, 1), (B, 1)], [(F, 2), (B, 2)]], "rank 0 misses BACKWARD of cell 0"),
        ([[(F, 0), (F, 1), (HALF, 0), (B, 1)], [(F, 2), (B, 2)]], "rank 0 misses BACKWARD_WEIGHT of cell 0"),
        ([[(F, 0), (F, 1), (REST, 0), (B, 1)], [(F, 2), (B, 2)]], "rank 0 misses BACKWARD of cell 0"),
        ([[(F, 0), (F, 1), (B, 0), (B, 1), (F, 0)], [(F, 2), (B, 2)]], "holds 7 tasks, the work has 6"),
        ([[(F, 0), (F, 1), (B, 0), (REST, 0), (B, 1)], [(F, 2), (B, 2)]], "holds 7 tasks, the work has 6"),
        ([[(F, 0), (B, 0), (B, 1)], [(F, 1), (F, 2), (B, 2)]], "rank 0 misses FORWARD of cell 1"),
    ],
)
def test_orders_that_cannot_run_are_refused(orders: list[list[Task]], message: str) -> None:
    with pytest.raises(OrderError, match=message):
        time_order(tiny_work(), orders, [()] * 3)


def test_a_cell_without_any_edge_cannot_be_forgotten() -> None:
    """A text alone on one rank: nothing else would miss its backward."""
    full = tiny_work()
    alone = Work(job=full.job, forward_only=False, chunks=full.chunks, parts=full.parts[2:])
    assert time_order(alone, [[], [(F, 0), (B, 0)]], [()]).makespan_us == 160
    for order in ([(F, 0)], []):
        with pytest.raises(OrderError, match="misses"):
            time_order(alone, [[], order], [()])


def test_strategies_stand_on_all_but_the_weight_half() -> None:
    work = tiny_work(split=True)
    plan = lower(
        work,
        batch=tiny_plan.tiny_request().batch,
        partition=tiny_plan.tiny_plan().partition,
        orders=HALVES,
        ways=[RECOMPUTE] * 3,
        lower_bound_us=0,
    )
    compute = [a for r in plan.ranks for a in r.actions if a.kind <= pb.ACTION_KIND_BACKWARD_WEIGHT]
    named = {Phase(action.kind): [(run.name, run.num_layers) for run in action.strategies] for action in compute}
    assert named == {F: [("recompute", 1)], HALF: [("recompute", 1)], REST: []}


@pytest.mark.parametrize("name", ["two_encoders", "loaded_partition", "chain_that_skips_a_module", "three_ranks"])
def test_each_pair_of_ranks_sends_in_the_order_in_which_it_receives(name: str) -> None:
    request = FITTING[name]()
    if not request.partition.chunks:
        request.partition.CopyFrom(default_partition(request.job))
    job = Job.from_spec(request.job)
    chunks = chunks_of(job, request.partition)
    parts = fitting_parts(job, request.batch, chunks, [None] * job.ranks)
    work = Work(job=job, forward_only=False, chunks=chunks, parts=parts)
    ways = [()] * work.num_cells
    plan = lower(
        work,
        batch=request.batch,
        partition=request.partition,
        orders=list_schedule(work, ways),
        ways=ways,
        lower_bound_us=1,
    )
    sent: dict[tuple[int, int], list[tuple[object, ...]]] = {}
    received: dict[tuple[int, int], list[tuple[object, ...]]] = {}
    for schedule in plan.ranks:
        for a in schedule.actions:
            what = a.module, a.chunk, a.sub_microbatch, a.consumer_module, a.consumer_chunk, a.consumer_sub_microbatch
            if a.kind in (pb.ACTION_KIND_SEND_ACTIVATION, pb.ACTION_KIND_SEND_GRADIENT):
                sent.setdefault((schedule.rank, a.peer), []).append((a.kind + 1, *what))
            elif a.kind > pb.ACTION_KIND_BACKWARD_WEIGHT:
                received.setdefault((a.peer, schedule.rank), []).append((a.kind, *what))
    assert sent == received
    assert sum(map(len, sent.values())) == 2 * sum(edge.crosses for edge in work.edges)


def test_sub_microbatches_list_their_instances() -> None:
    made = sub_microbatch_message(tiny_work(), 1)
    assert (made.id, made.module, made.microbatch) == (1, "vision", 0)
    assert [(ref.sample, ref.index, ref.units) for ref in made.instances] == [(0, 1, 20)]
