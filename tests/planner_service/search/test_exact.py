"""CP-SAT's windows: what they find is valid and no longer, and whole instances are proven."""

from __future__ import annotations

import math

import numpy as np
import pytest
from cases import documents, job, request
from dip.partition import default_partition
from exhaustive import shortest_us
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_work import Instance, instances, random_guide

from planner_service.search.exact import WindowModel, proven_bound_us
from planner_service.search.schedule import Schedule

SLOW = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


def window(start: np.ndarray, first: float, share: float) -> np.ndarray:
    """Tasks that start in a window: it begins after a share of the tasks and holds a share of them."""
    tasks = np.flatnonzero(start >= 0)
    tasks = tasks[np.argsort(start[tasks], kind="stable")]
    begin = min(int(first * len(tasks)), len(tasks) - 1)
    end = min(begin + int(share * len(tasks)), len(tasks) - 1)
    return (start >= start[tasks[begin]]) & (start <= start[tasks[end]])


@SLOW
@given(instances(), st.integers(0, 1000), st.floats(0, 1), st.floats(0, 1))
def test_a_window_leaves_a_valid_schedule(instance: Instance, seed: int, first: float, share: float) -> None:
    graph = instance.graph()
    schedule = Schedule.of(instance.candidate(graph, random_guide(graph, seed)))
    free = window(schedule.start, first, share)
    found = WindowModel(schedule.graph, schedule.start, free).solve(seconds=math.inf, effort=0.01, seed=seed)
    if found.start is None:
        return
    after = schedule.reordered(found.start, "window")
    assert not instance.faults(after)
    held = np.flatnonzero(~free & (schedule.start >= 0))
    rank = schedule.graph.rank[held % schedule.graph.num_cells]
    for r in range(schedule.graph.num_ranks):  # on each, what is not free keeps its order
        mine = held[rank == r]
        assert (np.diff(found.start[mine[np.argsort(schedule.start[mine])]]) > 0).all()


@pytest.mark.parametrize("seed", range(30))
def test_what_comes_after_a_window_stays_behind_it(seed: int) -> None:
    """A free task may move past the old start of a later one of its rank; the order must not wait for itself."""
    asked = request(job(ranks=2 + seed % 3), documents(4 + seed % 5))
    asked.partition.CopyFrom(default_partition(asked.job, asked.batch))
    instance = Instance.of(asked)
    graph = instance.graph()
    schedule = Schedule.of(instance.candidate(graph, random_guide(graph, seed)))
    for first in (0.1, 0.3, 0.5, 0.7):
        free = window(schedule.start, first, 0.25)
        found = WindowModel(schedule.graph, schedule.start, free).solve(seconds=math.inf, effort=0.03, seed=seed)
        if found.start is not None:
            later = schedule.reordered(found.start, "window")
            assert not instance.faults(later)
            schedule = min(schedule, later, key=lambda made: made.makespan_us)


def test_any_seed_of_the_contract_will_do() -> None:
    asked = request(job(ranks=2), documents(2))
    asked.partition.CopyFrom(default_partition(asked.job, asked.batch))
    instance = Instance.of(asked)
    graph = instance.graph()
    schedule = Schedule.of(instance.candidate(graph, random_guide(graph, 0)))
    model = WindowModel(schedule.graph, schedule.start, schedule.start >= 0)
    seeds = 0, (1 << 31) - 1, 1 << 31, (1 << 63) - 1
    assert len({model.solve(seconds=math.inf, effort=5.0, seed=seed).bound_us for seed in seeds}) == 1


def test_a_small_instance_is_solved_to_the_end() -> None:
    """Two equal microbatches through two ranks, forward and backward: the best is known."""
    asked = request(job(ranks=2), [[{"language": [64]}]] * 2)
    asked.job.cluster.link_latency_us = asked.job.cluster.link_bytes_per_us = 0
    asked.partition.CopyFrom(default_partition(asked.job))
    instance = Instance.of(asked)
    graph = instance.graph()
    n = graph.num_cells
    one_after_another = np.array([0, 1, 4, 5, 3, 2, 7, 6, *[-1] * n])
    schedule = Schedule.of(instance.candidate(graph, random_guide(graph, 0))).reordered(one_after_another, "test")
    result = WindowModel(schedule.graph, schedule.start, schedule.start >= 0).solve(
        seconds=math.inf, effort=5.0, seed=0
    )
    forward, backward = int(graph.duration[0]), int(graph.duration[n])
    best = 3 * (forward + backward)  # both microbatches on a rank, and one task of the other rank at each end
    assert schedule.makespan_us == 4 * (forward + backward)
    assert result.bound_us == best
    assert result.start is not None
    assert schedule.reordered(result.start, "CP-SAT").makespan_us == best


@SLOW
@given(instances(), st.integers(0, 1000))
def test_a_bound_holds_for_any_strategies_splits_and_memory(instance: Instance, seed: int) -> None:
    """It exceeds neither the best of all schedules in unlimited memory nor any schedule at hand."""
    graph = instance.graph()
    schedule = Schedule.of(instance.candidate(graph, random_guide(graph, seed)))
    bound = proven_bound_us(schedule, seconds=math.inf, effort=0.05, seed=seed)
    assert bound <= schedule.makespan_us
    shortest = shortest_us(instance.work, most_modes=64) if schedule.num_tasks <= 12 else None
    assert shortest is None or bound <= shortest


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_a_bound_is_the_optimum_where_nothing_limits_and_storing_is_quickest(seed: int, split: bool) -> None:
    asked = request(job(ranks=2, split_backward=split), [[{"language": [64 * (1 + (seed + j) % 3)]}] for j in range(2)])
    asked.partition.CopyFrom(default_partition(asked.job, asked.batch))
    instance = Instance.of(asked)
    graph = instance.graph()
    schedule = Schedule.of(instance.candidate(graph, random_guide(graph, seed)))
    bound = proven_bound_us(schedule, seconds=math.inf, effort=10.0, seed=seed)
    shortest = shortest_us(instance.work, most_modes=1 << 20)
    assert shortest is not None
    rounded = len(instance.work.cell_part) if split else 0  # a microsecond for each cell, halves rounded up alone
    assert shortest - rounded <= bound <= shortest
