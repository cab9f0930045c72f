"""The decoder makes a valid schedule of any priorities, and never gets stuck where every group fits alone."""

from __future__ import annotations

import numpy as np
from cases import documents, job, request
from corners import FITTING
from dip.partition import default_partition
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_work import Instance, instances, random_guide

from planner_service.domain.graph import task_graph
from planner_service.search.decoders import ALTERNATE, NEVER, UNIFIED, Guide, decode
from planner_service.search.schedule import Schedule

SLOW = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


@SLOW
@given(instances(), st.integers(0, 1000))
def test_any_priorities_give_a_valid_schedule(instance: Instance, seed: int) -> None:
    graph = instance.graph()
    candidate = instance.candidate(graph, random_guide(graph, seed))
    assert candidate.makespan_us < NEVER
    assert not instance.faults(Schedule.of(candidate))


@SLOW
@given(instances(limited=True), st.integers(0, 1000))
def test_a_careless_guide_gives_a_valid_schedule_or_gets_stuck(instance: Instance, seed: int) -> None:
    graph = instance.graph()
    candidate = instance.candidate(graph, random_guide(graph, seed)._replace(careful=False))
    if candidate.makespan_us < NEVER:
        assert not instance.faults(Schedule.of(candidate))


def test_a_careless_guide_has_more_in_flight() -> None:
    """Seldom promised room is used: of many orders in little memory some get stuck, and some are shorter."""
    instance = tight(200_000)
    graph = instance.graph()
    stuck = shorter = 0
    for seed in range(200):
        guide = random_guide(graph, seed)
        careful, careless = (decode(graph, guide._replace(careful=held)).makespan_us for held in (True, False))
        stuck += careless == NEVER
        shorter += careless < careful
    assert stuck > 0
    assert shorter > 0


def tight(spare_bytes: int) -> Instance:
    """Six microbatches with room for the largest of them, all lean, and ``spare_bytes`` more."""
    asked = request(job(ranks=3, memory_bytes=[0], split_backward=True), documents(6))
    asked.partition.CopyFrom(default_partition(asked.job, asked.batch))
    free = Instance.of(asked).work
    asked.job.cluster.memory_bytes[0] = 1 << 40
    needs = task_graph(Instance.of(asked).work).need
    worst = max(static + int(need) for static, need in zip(free.static_bytes, needs.max(axis=0), strict=True))
    asked.job.cluster.memory_bytes[0] = worst + spare_bytes
    return Instance.of(asked)


def test_it_is_not_stuck_with_room_for_one_group_to_the_byte() -> None:
    for spare in (0, 1, 1000, 50_000):
        instance = tight(spare)
        for split in (False, True):
            graph = task_graph(instance.work, split=split)
            for seed in range(20):
                candidate = instance.candidate(graph, random_guide(graph, seed))
                assert candidate.makespan_us < NEVER
                assert not instance.faults(Schedule.of(candidate))


def test_groups_that_keep_nothing_when_lean_count_while_they_store() -> None:
    """What such a group needs is 0 from the start: it is not over before its last backward is."""
    asked = request(job(ranks=2), documents(8))
    for layers in (run for each in asked.job.model.modules for run in each.layers):
        for point in layers.cost.strategies[0].points:
            point.activation_bytes = 0
    asked.partition.CopyFrom(default_partition(asked.job, asked.batch))
    work = Instance.of(asked).work
    largest = int(task_graph(work).kept.max())
    asked.job.cluster.memory_bytes[:] = [max(work.static_bytes) + 2 * largest]
    instance = Instance.of(asked)
    graph = instance.graph()
    assert not graph.need.any()
    for seed in range(20):
        schedule = Schedule.of(instance.candidate(graph, random_guide(graph, seed)))
        assert not all(schedule.ways)
        assert not instance.faults(schedule)


def test_a_group_that_does_not_fit_alone_is_never_scheduled() -> None:
    graph = task_graph(tight(0).work)
    short = graph._replace(room=graph.room - 1)
    assert decode(short, random_guide(short, 0)).makespan_us == NEVER


def test_the_more_is_held_in_reserve_the_more_is_lean() -> None:
    instance = tight(200_000)
    graph = task_graph(instance.work)
    guide = random_guide(graph, 3)
    lean = [int(decode(graph, guide._replace(reserve=reserve)).lean.sum()) for reserve in (0.0, 0.5, 1.0)]
    assert lean[0] < lean[-1]
    assert lean == sorted(lean)


def test_nothing_is_lean_without_a_limit() -> None:
    asked = FITTING["two_encoders"]()
    asked.partition.CopyFrom(default_partition(asked.job))
    graph = Instance.of(asked).graph()
    assert not decode(graph, random_guide(graph, 0)).lean.any()


def test_the_lowest_priority_value_goes_first() -> None:
    """On one rank, by groups: the order of forwards is that of the values, and backwards that are lower go before."""
    asked = request(job(ranks=1), [[{"language": [100 + j]}] for j in range(4)])
    asked.partition.CopyFrom(default_partition(asked.job))
    graph = Instance.of(asked).graph()
    n = graph.num_cells
    values = np.array([3.0, 1.0, 0.0, 2.0, -1.0, -1.0, 9.0, 10.0])
    start = decode(graph, Guide(values, np.arange(n), UNIFIED, 0.0, np.zeros(n), 1.0, True)).start
    # Cell 2 first; its backward is the least urgent. Backwards of 1 and 0 go as soon as they can.
    assert np.argsort(start[: 2 * n]).tolist() == [2, 1, 5, 3, 0, 4, 6, 7]


def test_in_turns_a_backward_follows_a_forward_where_both_can_start() -> None:
    asked = request(job(ranks=1), [[{"language": [100]}] for _ in range(4)])
    asked.partition.CopyFrom(default_partition(asked.job))
    graph = Instance.of(asked).graph()
    n = graph.num_cells
    start = decode(graph, Guide(np.arange(2.0 * n), np.arange(n), ALTERNATE, 0.0, np.zeros(n), 1.0, True)).start
    assert np.argsort(start[: 2 * n]).tolist() == [0, 4, 1, 5, 2, 6, 3, 7]
