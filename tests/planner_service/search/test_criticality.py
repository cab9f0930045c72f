"""Shows that slack is exact: a task may take longer by just so much before the schedule does, and the same for data."""

from __future__ import annotations

import corners
import numpy as np
from dip.partition import default_partition
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_work import Instance, instances, random_guide

from planner_service.search.criticality import NEVER, slack_of
from planner_service.search.orders import retime
from planner_service.search.schedule import Schedule

SLOW = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))


@SLOW
@given(instances(), st.integers(0, 1000))
def test_a_task_may_take_longer_by_its_slack_and_no_more(instance: Instance, seed: int) -> None:
    graph = instance.graph()
    schedule = Schedule.of(instance.candidate(graph, random_guide(graph, seed)))
    start, makespan_us = retime(schedule.graph, schedule.start)
    least = slack_of(schedule.graph, start).least
    for task in np.flatnonzero(start >= 0).tolist():
        for more_us, later_us in ((least[task], 0), (least[task] + 1, 1)):
            duration = schedule.graph.duration.copy()
            duration[task] += more_us
            _, slower_us = retime(schedule.graph._replace(duration=duration), start)
            assert slower_us == makespan_us + later_us


@SLOW
@given(instances(), st.integers(0, 1000))
def test_activations_may_be_late_by_the_slack_of_their_data(instance: Instance, seed: int) -> None:
    graph = instance.graph()
    schedule = Schedule.of(instance.candidate(graph, random_guide(graph, seed)))
    fixed = schedule.graph
    start, makespan_us = retime(fixed, schedule.start)
    data = slack_of(fixed, start).data
    for cell in range(fixed.num_cells):
        if data[cell] == NEVER:
            continue
        hop = fixed.hop.copy()
        hop[fixed.first[cell] : fixed.first[cell + 1]] += data[cell]
        _, slower_us = retime(fixed._replace(hop=hop), start)
        assert slower_us == makespan_us


def test_where_there_is_no_task_nothing_waits() -> None:
    instance = _forward_only()
    graph = instance.graph()
    schedule = Schedule.of(instance.candidate(graph, random_guide(graph, 0)))
    slack = slack_of(schedule.graph, schedule.start)
    n = graph.num_cells
    assert (slack.data[n:] == NEVER).all()
    assert (slack.rank[n:] == NEVER).all()
    assert (slack.rank[:n] < NEVER).all()


def _forward_only() -> Instance:
    asked = corners.forward_only()
    asked.partition.CopyFrom(default_partition(asked.job, asked.batch))
    return Instance.of(asked)
