"""Trying a choice: the partition and the sub-microbatches that it says, once, and a schedule of every batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cases import documents, job, module, request
from dip.job import Job
from dip.validation import validate_partition

from planner_service.partition.choice import Choice, Shape
from planner_service.partition.trials import Trials
from planner_service.search.savings import NOTHING
from planner_service.search.stopping import Stopping

if TYPE_CHECKING:
    from dip.planner.v1 import planner_pb2 as pb


def trials(*asked: pb.PlanRequest) -> Trials:
    return Trials(Job.from_spec(asked[0].job), [one.batch for one in asked], Stopping(seconds=1), None)


def ranks_of(partition: pb.Partition, name: str) -> list[int]:
    return [chunk.rank for chunk in partition.chunks if chunk.module == name]


COARSE = Choice(shapes=(Shape(), Shape()), parts=(1, 1))


@pytest.mark.parametrize(
    ("shape", "ranks"),
    [
        (Shape(segments=2), [0, 1, 2, 0, 1, 2]),
        (Shape(segments=2, zigzag=True), [0, 1, 2, 2, 1, 0]),
        (Shape(segments=2, backwards=True), [2, 1, 0, 2, 1, 0]),
        (Shape(segments=3, zigzag=True, backwards=True), [2, 1, 0, 0, 1, 2, 2, 1, 0]),
    ],
)
def test_chunks_lie_as_the_shape_says(shape: Shape, ranks: list[int]) -> None:
    asked = request(job(ranks=3), documents(4))
    partition = trials(asked).cut(COARSE.with_shape(1, shape))
    validate_partition(asked.job, partition)
    assert ranks_of(partition, "language") == ranks


def test_a_narrow_module_lies_on_as_many_ranks_as_the_shape_says() -> None:
    asked = request(job(ranks=4), documents(4))
    partition = trials(asked).cut(COARSE.with_shape(0, Shape(segments=2, width=2, zigzag=True)))
    validate_partition(asked.job, partition)
    there = ranks_of(partition, "vision")
    assert there == [there[0], there[1], there[1], there[0]]
    assert there[0] != there[1]


def test_targets_are_shares_of_the_largest() -> None:
    """1,024 units and less in vision, two parts: 512; groups of a third of the bytes of the heaviest microbatch."""
    asked = request(job(), [[{"vision": [1024], "language": [300]}], [{"vision": [64], "language": [300]}]])
    made = trials(asked)
    target = made.target(Choice(shapes=(Shape(), Shape()), parts=(2, 1), slices=3))
    assert target.units == (512, 0)
    kept = 8 * 400 * 1024 + 12 * 400 * 300
    assert target.group_bytes == -(-kept // 3)


def test_makespans_of_all_batches_add_up() -> None:
    few, many = request(job(), documents(3)), request(job(), documents(6))
    _, both = trials(few, many).schedule(COARSE, seeds=2, saving=None)
    assert both
    alone = []
    for one in both.candidates:
        alone.append(one.makespan_us)
    assert both.makespan_us == sum(alone)
    assert alone[0] < alone[1]
    assert [len(c.work.parts) for c in both.candidates] == [6 - 0, 12 - 0]
    assert both.candidate is both.candidates[0]
    assert both.num_tasks == 2 * (6 + 12) * 4


def test_what_comes_to_the_same_is_scheduled_once() -> None:
    """One instance a module and microbatch cannot be cut, whatever the target."""
    made = trials(request(job([module("lm", 8)]), [[{"lm": [640]}]] * 3))
    whole, cut = (Choice(shapes=(Shape(),), parts=(many,)) for many in (1, 2))
    outcome, found = made.schedule(whole, seeds=2, saving=None)
    assert found
    assert outcome.makespan_us == found.makespan_us
    assert made.schedule(cut, seeds=2, saving=None) == (outcome, None)


def test_what_does_not_fit_has_no_schedule() -> None:
    asked = request(job(ranks=2, memory_bytes=[10_100_000]), [[{"vision": [900], "language": [900]}]] * 2)
    outcome, found = trials(asked).schedule(COARSE, seeds=2, saving=None)
    assert outcome.makespan_us is None
    assert found is None


def test_scheduling_again_never_makes_it_worse() -> None:
    made = trials(request(job(), documents(6)))
    choice = COARSE.with_parts(0, 3)
    _, found = made.schedule(choice, seeds=1, saving=NOTHING)
    assert found
    assert made.again(choice, found, seeds=6).makespan_us <= found.makespan_us
