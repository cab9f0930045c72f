"""Forward-backward improvement: the mirror of a mirror is the graph, and no schedule comes back worse."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from random_work import Instance, instances, random_guide

from planner_service.domain.graph import task_graph
from planner_service.search.justify import can_mirror, ends_of, justify, mirror
from planner_service.search.schedule import Schedule

SLOW = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


@SLOW
@given(instances())
def test_the_mirror_of_a_mirror_is_the_graph(instance: Instance) -> None:
    graph = task_graph(instance.work)
    twice = mirror(mirror(graph))
    assert all(np.array_equal(mine, theirs) for mine, theirs in zip(graph, twice, strict=True))


@SLOW
@given(instances(), st.integers(0, 1000))
def test_a_schedule_comes_back_valid_and_no_longer(instance: Instance, seed: int) -> None:
    graph = task_graph(instance.work)
    assume(can_mirror(graph))
    guide = random_guide(graph, seed)
    found = instance.candidate(graph, guide)
    better = justify(graph, found.decoded, guide, rounds=3)
    assert better.makespan_us <= found.makespan_us
    done = Schedule.of(instance.candidate(graph, guide)).graph.num_cells
    assert ends_of(graph, better).max(initial=0) == better.makespan_us
    assert done == graph.num_cells


@SLOW
@given(instances())
def test_only_problems_of_whole_backwards_have_a_mirror(instance: Instance) -> None:
    graph = instance.graph()
    work = instance.work
    cells = range(work.num_cells)
    halves = any(work.has_backward(c) and not work.module_of(c).frozen for c in cells) and work.job.split_backward
    assert can_mirror(graph) == (all(work.has_backward(c) for c in cells) and not halves)
