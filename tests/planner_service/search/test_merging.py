"""Halves that run one after the other become whole backwards: valid, no longer, and only where nobody waits."""

from __future__ import annotations

import numpy as np
from cases import documents, job, request
from dip.partition import default_partition
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_work import Instance, instances, random_guide

from planner_service.search.merging import merged
from planner_service.search.schedule import Schedule


def halves(schedule: Schedule) -> int:
    return int((schedule.start[2 * schedule.work.num_cells :] >= 0).sum())


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(instances(), st.integers(0, 1000))
def test_a_merged_schedule_is_valid_and_no_longer(instance: Instance, seed: int) -> None:
    graph = instance.graph()
    before = Schedule.of(instance.candidate(graph, random_guide(graph, seed)))
    after = merged(before)
    assert after.makespan_us <= before.makespan_us
    assert halves(after) <= halves(before)
    assert not instance.faults(after)


def test_on_one_rank_all_backwards_run_whole() -> None:
    """Nobody waits for a gradient that the same rank uses next."""
    asked = request(job(ranks=1, split_backward=True), documents(3))
    asked.partition.CopyFrom(default_partition(asked.job, asked.batch))
    instance = Instance.of(asked)
    graph = instance.graph()
    eager = random_guide(graph, 0)._replace(hoard=0.0)
    limited = graph._replace(room=np.array([int(graph.kept.sum()) - 1]))
    before = Schedule.of(instance.candidate(limited, eager))
    assert halves(before) > 0
    assert halves(merged(before)) < halves(before)
