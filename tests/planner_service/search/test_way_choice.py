"""Ways chosen anew in one order: valid, never longer, and on one rank as good as trying all choices."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pytest
from cases import documents, job, request
from corners import FITTING
from dip.partition import default_partition
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_work import Instance, instances, random_guide

from planner_service.search.orders import retime
from planner_service.search.schedule import Schedule
from planner_service.search.way_choice import improve_memory
from planner_service.search.way_model import Option, Span, WayModel

if TYPE_CHECKING:
    from dip.planner.v1 import planner_pb2 as pb

SLOW = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


def scheduled(asked: pb.PlanRequest, seed: int = 0) -> tuple[Instance, Schedule]:
    asked.partition.CopyFrom(default_partition(asked.job, asked.batch))
    instance = Instance.of(asked)
    graph = instance.graph()
    return instance, Schedule.of(instance.candidate(graph, random_guide(graph, seed)))


@SLOW
@given(instances(), st.integers(0, 1000))
def test_the_schedule_stays_valid_and_gets_no_longer(instance: Instance, seed: int) -> None:
    graph = instance.graph()
    schedule = Schedule.of(instance.candidate(graph, random_guide(graph, seed)))
    found = improve_memory(schedule, seconds=float("inf"), effort=0.2, seed=seed)
    assert found.makespan_us <= schedule.makespan_us
    assert not instance.faults(found)
    assert retime(found.graph, found.start)[1] == found.makespan_us


@pytest.mark.parametrize("name", ["memory_that_differs_by_rank", "split_backward_in_little_memory"])
def test_the_same_seed_and_effort_choose_the_same(name: str) -> None:
    _, schedule = scheduled(FITTING[name]())
    a, b = (improve_memory(schedule, seconds=float("inf"), effort=0.5, seed=3) for _ in range(2))
    assert a.ways == b.ways
    assert (a.start == b.start).all()


def test_no_time_leaves_the_schedule_alone() -> None:
    _, schedule = scheduled(FITTING["memory_that_differs_by_rank"]())
    assert improve_memory(schedule, seconds=0.0, effort=1.0, seed=0) is schedule


def test_layers_that_recompute_for_nothing_store() -> None:
    """All cells lean although everything fits: none is, afterwards."""
    _, schedule = scheduled(request(job(memory_bytes=[1 << 40]), documents(4)))
    work = schedule.work
    lean = [work.lean_ways.way(kind, work.lean_ways.most(kind)) for kind in work.cell_kind]
    slow = schedule.rewayed(lean, "test")
    assert slow.makespan_us > schedule.makespan_us
    found = improve_memory(slow, seconds=float("inf"), effort=1.0, seed=0)
    assert not any(found.ways)
    assert found.makespan_us == schedule.makespan_us


def test_a_backward_is_split_where_that_lets_the_gradient_leave_earlier() -> None:
    """One microbatch through four ranks, all backwards whole: the weight halves are what no other rank waits for."""
    asked = request(job(split_backward=True), [[{"language": [256]}]])
    _, schedule = scheduled(asked)
    work = schedule.work
    whole = schedule.start.copy()
    whole[2 * work.num_cells :] = -1
    plain = Schedule(
        work=work, ways=schedule.ways, graph=schedule.graph, start=whole, makespan_us=0, engine="test"
    ).rewayed(schedule.ways, "test")
    found = improve_memory(plain, seconds=float("inf"), effort=1.0, seed=0)
    weights = [work.cost(cell).backward_weight_us for cell in range(work.num_cells)]
    assert plain.makespan_us - found.makespan_us >= sum(weights) // 2


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_rank_gets_the_cheapest_choice_that_fits(data: st.DataObject) -> None:
    """Of three cells with up to three options each, against all choices."""
    places = data.draw(st.permutations(range(9)))
    spans, options = {}, {}
    for cell in range(3):
        forward, backward, weight = sorted(places[3 * cell : 3 * cell + 3])
        spans[cell] = Span(forward=forward, backward=backward, weight=weight)
        options[cell] = [
            Option(
                way=(("way", i + 1),),
                halves=data.draw(st.booleans()),
                kept_bytes=data.draw(st.integers(0, 1000)),
                between_bytes=data.draw(st.integers(0, 1000)),
                price=data.draw(st.integers(0, 100)),
            )
            for i in range(data.draw(st.integers(1, 3)))
        ]
    now = peak(spans, [options[cell][0] for cell in range(3)])
    room = now + data.draw(st.integers(0, 500))
    picked = WayModel(spans, options, room).solve(seconds=float("inf"), effort=5.0, seed=0)
    assert peak(spans, [picked[cell] for cell in range(3)]) <= room
    best = min(
        sum(option.price for option in choice) for choice in product(*options.values()) if peak(spans, choice) <= room
    )
    assert sum(option.price for option in picked.values()) == best


def peak(spans: dict[int, Span], choice: tuple[Option, ...] | list[Option]) -> int:
    """Most that a rank holds, place by place."""
    held = np.zeros(10, dtype=np.int64)
    for span, option in zip(spans.values(), choice, strict=True):
        held[span.forward : span.backward] += option.kept_bytes
        held[span.backward] += option.between_bytes if option.halves else option.kept_bytes
        if option.halves:
            held[span.backward + 1 : span.weight + 1] += option.between_bytes
    return int(held.max())
