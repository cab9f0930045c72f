"""Which choices are worth a try: what is asked for stays, cheap modules stay coarse, and all choices can be reached."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from cases import documents, job, module, request
from corners import FITTING
from dip.job import Job

from planner_service.partition.choice import Choice, Shape
from planner_service.partition.estimate import Estimator
from planner_service.partition.space import PARTS, SLICES, Space
from planner_service.partition.trials import Trials
from planner_service.search.stopping import Stopping

if TYPE_CHECKING:
    from dip.planner.v1 import planner_pb2 as pb


def space(asked: pb.PlanRequest, *, kept: bool = False) -> Space:
    made = Job.from_spec(asked.job)
    trials = Trials(made, [asked.batch], Stopping(seconds=1), None)
    estimator = Estimator(made, trials.sizes, forward_only=asked.batch.forward_only)
    return Space(made, estimator, trials.most_instances, kept=kept)


def reached(found: Space, start: Choice) -> set[Choice]:
    """Every choice that steps lead to."""
    seen, left = {start}, [start]
    while left:
        for near in found.near(left.pop()):
            if near not in seen:
                seen.add(near)
                left.append(near)
    return seen


@pytest.mark.parametrize("name", FITTING)
def test_every_start_is_in_the_space_and_steps_lead_back_and_forth(name: str) -> None:
    found = space(FITTING[name]())
    for start in (*found.starts(), found.coarsest(), *found.narrow()):
        assert all(shape in shapes for shape, shapes in zip(start.shapes, found.shapes, strict=True))
        assert all(many in parts for many, parts in zip(start.parts, found.parts, strict=True))
        near = list(found.near(start))
        assert len(set(near)) == len(near)
        assert start not in near
    assert len(set(found.starts())) == len(found.starts())


def test_steps_lead_from_everywhere_to_everywhere() -> None:
    asked = request(job([module("lm", 16)], ranks=4, memory_bytes=[20_000_000]), [[{"lm": [64] * 4}]] * 8)
    found = space(asked)
    every = {
        Choice(shapes=(shape,), parts=(many,), slices=slices)
        for shape in found.shapes[0]
        for many in found.parts[0]
        for slices in found.slices
    }
    assert reached(found, found.coarsest()) == every


def test_every_direction_is_worth_a_try() -> None:
    asked = request(job([module("lm", 8)], ranks=4), [[{"lm": [640]}]] * 8)
    assert set(space(asked).shapes[0]) == {
        Shape(segments=1),
        Shape(segments=1, backwards=True),
        *(Shape(segments=2, zigzag=zigzag, backwards=back) for zigzag in (False, True) for back in (False, True)),
    }


def test_segments_that_are_asked_for_stay_on_all_ranks() -> None:
    asked = request(job(ranks=4, segments={"language": 3}), documents(4))
    assert {(shape.segments, shape.width) for shape in space(asked).shapes[1]} == {(3, 0)}


def test_a_cheap_module_is_not_cut_but_may_lie_on_few_ranks() -> None:
    modules = [module("audio", 8, us_per_unit=0.01), module("language", 16, inputs=["audio"], us_per_unit=20)]
    found = space(request(job(modules, ranks=4), [[{"audio": [64, 64], "language": [900]}]] * 4))
    assert {(shape.segments, shape.width) for shape in found.shapes[0]} == {(1, 0), (1, 1), (1, 2), (1, 3)}
    assert found.parts[0] == (1,)
    assert {shape.width for shape in found.shapes[1]} == {0}


def test_nothing_is_cut_below_the_efficient_size_unless_memory_is_tight() -> None:
    """A launch of 20 us a layer, and 2,560 us for the largest microbatch: six parts lose 4%, eight more than 5%."""
    asked = request(job([module("lm", 8)], ranks=4), [[{"lm": [640] * 8}]] * 8)
    assert space(asked).parts == ((1, 2, 3, 4, 6),)
    asked.job.cluster.memory_bytes[:] = [3_000_000]
    tight = space(asked)
    assert tight.parts == (PARTS[:-1],)
    assert tight.slices == SLICES


def test_sizes_alone_are_left_where_the_partition_is_kept() -> None:
    found = space(request(job(), documents(4)), kept=True)
    assert all(len(shapes) == 1 for shapes in found.shapes)


def test_what_the_job_says_about_sizes_is_not_tried_otherwise() -> None:
    assert space(request(job(sub_microbatch_units={"vision": 128}), documents(4))).parts[0] == (1,)
