"""Orders and times: a schedule's own order, run as early as it allows, is never longer than the schedule."""

from __future__ import annotations

import numpy as np
from dip.lowering import time_order
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_work import Instance, instances, random_guide

from planner_service.search.orders import orders_of, retime
from planner_service.search.schedule import Schedule

SLOW = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))


@SLOW
@given(instances(), st.integers(0, 1000), st.integers(1, 50))
def test_the_earliest_times_of_an_order_are_those_that_plans_state(instance: Instance, seed: int, late: int) -> None:
    graph = instance.graph()
    schedule = Schedule.of(instance.candidate(graph, random_guide(graph, seed)))
    stretched = np.where(schedule.start >= 0, schedule.start * late, -1)
    start, makespan_us = retime(schedule.graph, stretched)
    assert makespan_us <= schedule.makespan_us
    assert (start <= schedule.start).all()
    orders = orders_of(schedule.graph, start)
    assert orders == orders_of(schedule.graph, schedule.start)
    timing = time_order(instance.work, orders, schedule.ways)
    assert timing.makespan_us == makespan_us
    assert timing.start_us == start.tolist()
