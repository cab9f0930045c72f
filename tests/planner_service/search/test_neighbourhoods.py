"""Neighbourhoods: what they find is valid and no longer, what is fixed keeps its order, and the rest is exact."""

from __future__ import annotations

import math

import numpy as np
import pytest
from cases import documents, job, request
from corners import FITTING
from dip.partition import default_partition
from exhaustive import shortest_us
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_work import Instance, instances, random_guide

from planner_service.search.neighbourhoods import Neighbourhoods
from planner_service.search.order_model import OrderModel, earliest_starts
from planner_service.search.orders import retime
from planner_service.search.relaxation import relax
from planner_service.search.schedule import Schedule

SLOW = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))


def scheduled(instance: Instance, seed: int) -> Schedule:
    graph = instance.graph()
    return Schedule.of(instance.candidate(graph, random_guide(graph, seed)))


def planned(name: str, seed: int = 0) -> tuple[Instance, Schedule]:
    asked = FITTING[name]()
    if not asked.partition.chunks:
        asked.partition.CopyFrom(default_partition(asked.job, asked.batch))
    instance = Instance.of(asked)
    return instance, scheduled(instance, seed)


@SLOW
@given(instances(), st.integers(0, 1000))
def test_every_attempt_leaves_a_valid_schedule_that_is_no_longer(instance: Instance, seed: int) -> None:
    schedule, search = scheduled(instance, seed), Neighbourhoods(seed=seed)
    for _ in range(4):
        found = search.improve(schedule, seconds=float("inf"), effort=0.02)
        if found is not None:
            assert found.makespan_us <= schedule.makespan_us
            assert not instance.faults(found)
            schedule = found


@SLOW
@given(instances(), st.integers(0, 1000), st.floats(0, 0.9), st.integers(0, 3))
def test_fixed_tasks_keep_their_order(instance: Instance, seed: int, share: float, reach: int) -> None:
    """Whatever is free, and however far that may go."""
    schedule = scheduled(instance, seed)
    free = (np.random.default_rng(seed).random(len(schedule.start)) < share) & (schedule.start >= 0)
    relaxed = relax(schedule.graph, schedule.start, free, reach=reach)
    result = OrderModel(schedule.graph, schedule.start, relaxed).solve(seconds=math.inf, effort=0.02, seed=seed)
    assert result.bound_us <= schedule.makespan_us
    if result.start is None:
        return
    assert not instance.faults(schedule.reordered(result.start, "test"))
    held = np.flatnonzero(~free & (schedule.start >= 0))
    rank = schedule.graph.rank[held % schedule.graph.num_cells]
    for r in range(schedule.graph.num_ranks):
        mine = held[rank == r]
        in_order = mine[np.argsort(schedule.start[mine])]
        assert (np.diff(result.start[in_order]) > 0).all()


@SLOW
@given(instances(), st.integers(0, 1000), st.floats(0, 1), st.integers(0, 3))
def test_what_is_relaxed_away_still_counts(instance: Instance, seed: int, share: float, reach: int) -> None:
    """Nodes at their earliest starts and their tails give the makespan of the schedule itself."""
    schedule = scheduled(instance, seed)
    free = (np.random.default_rng(seed).random(len(schedule.start)) < share) & (schedule.start >= 0)
    relaxed = relax(schedule.graph, schedule.start, free, reach=reach)
    at, duration = schedule.start[relaxed.nodes], schedule.graph.duration[relaxed.nodes]
    assert (relaxed.head <= at).all()
    reached = max((at + duration + relaxed.tail).max(initial=0), relaxed.others_us)
    assert reached <= schedule.makespan_us
    if not free.any():
        assert relaxed.others_us == schedule.makespan_us
    for i, j, lag in relaxed.arcs.tolist():
        assert at[i] + duration[i] + lag <= at[j]


@SLOW
@given(instances(), st.integers(0, 1000))
def test_orders_of_ranks_give_the_starts_that_a_schedule_has(instance: Instance, seed: int) -> None:
    schedule = scheduled(instance, seed)
    tasks = np.flatnonzero(schedule.start >= 0)
    rank = schedule.graph.rank[tasks % schedule.graph.num_cells]
    by_rank = tasks[np.lexsort((schedule.start[tasks], rank))]
    ends = np.cumsum([0, *np.bincount(rank, minlength=schedule.graph.num_ranks)])
    assert (earliest_starts(schedule.graph, by_rank, ends) == retime(schedule.graph, schedule.start)[0]).all()


@pytest.mark.parametrize("seed", range(6))
def test_a_whole_tiny_instance_is_solved_to_its_optimum(seed: int) -> None:
    """Against all orders, backwards whole and memory unlimited."""
    asked = request(job(ranks=2), [[{"language": [64 * (1 + (seed + j) % 3)]}] for j in range(3)])
    asked.partition.CopyFrom(default_partition(asked.job, asked.batch))
    instance = Instance.of(asked)
    schedule = scheduled(instance, seed)
    relaxed = relax(schedule.graph, schedule.start, schedule.start >= 0, reach=0)
    model = OrderModel(schedule.graph, schedule.start, relaxed, all_ends=False)
    result = model.solve(seconds=math.inf, effort=10.0, seed=seed, thorough=True)
    found = schedule if result.start is None else schedule.reordered(result.start, "test")
    assert result.closed
    assert result.bound_us == found.makespan_us == shortest_us(instance.work)


def test_attempts_are_the_same_for_the_same_seed() -> None:
    _, schedule = planned("rank_speeds_that_differ")
    runs = []
    for _ in range(2):
        search, now = Neighbourhoods(seed=5), schedule
        for _ in range(6):
            now = search.improve(now, seconds=float("inf"), effort=0.02) or now
        runs.append((now.start.tolist(), [(t.tries, t.successes, t.gain_us) for t in search.tallies.values()]))
    assert runs[0] == runs[1]


def test_each_engine_is_tried_and_accounted_for() -> None:
    """From a bad schedule: some engine gains, and the tallies add up to what was gained."""
    _, schedule = planned("split_backward", seed=1)
    search, now = Neighbourhoods(seed=0), schedule
    for _ in range(40):
        now = search.improve(now, seconds=float("inf"), effort=0.02) or now
    tallies = search.tallies.values()
    assert now.makespan_us < schedule.makespan_us
    assert sum(tally.gain_us for tally in tallies) == schedule.makespan_us - now.makespan_us
    assert sum(tally.tries for tally in tallies) == 40
    assert all(tally.tries for tally in tallies)


def test_memory_between_the_halves_is_counted() -> None:
    """Split backwards in little memory: no order found overruns a rank."""
    instance, schedule = planned("split_backward_in_little_memory")
    search = Neighbourhoods(seed=0)
    for _ in range(10):
        schedule = search.improve(schedule, seconds=float("inf"), effort=0.02) or schedule
        assert not instance.faults(schedule)


def test_work_without_tasks_has_no_neighbourhood() -> None:
    asked = request(job(), documents(1))
    asked.batch.CopyFrom(FITTING["all_microbatches_empty"]().batch)
    asked.partition.CopyFrom(default_partition(asked.job, asked.batch))
    instance = Instance.of(asked)
    empty = Schedule(
        work=instance.work,
        ways=[],
        graph=instance.graph(),
        start=np.zeros(0, dtype=np.int64),
        makespan_us=0,
        engine="test",
    )
    assert Neighbourhoods(seed=0).improve(empty, seconds=1.0, effort=0.1) is None
