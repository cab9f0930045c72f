"""Schedules of cells that are all as lean: valid, one for each share that fits, and of the share that they say."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_work import Instance, instances, random_guide

from planner_service.search.even_ways import SHARES, even_schedules
from planner_service.search.orders import retime


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(instances(limited=True), st.integers(0, 1000))
def test_every_share_gives_a_valid_schedule(instance: Instance, seed: int) -> None:
    graph = instance.graph()
    found = instance.candidate(graph, random_guide(graph, seed))
    made = list(even_schedules(found, [random_guide(graph, seed + 1)]))
    assert 1 <= len(made) <= len(SHARES)  # with all layers lean it fits
    for schedule in made:
        assert not instance.faults(schedule)
        assert retime(schedule.graph, schedule.start)[1] <= schedule.makespan_us
    work = instance.work
    for cell, way in enumerate(made[-1].ways):
        lean = sum(count for name, count in way if name != "store")
        assert lean == (work.lean_ways.most(work.cell_kind[cell]) if work.has_backward(cell) else 0)
