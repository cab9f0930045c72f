"""A schedule is recalled as it was for the same work, and as a start for any other work of the job."""

from __future__ import annotations

import numpy as np
from cases import documents, job, request
from dip.partition import default_partition
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_work import Instance, instances, random_guide

from planner_service.search.decoders import NEVER, decode
from planner_service.search.portfolio import Portfolio
from planner_service.search.quick import quick_schedule
from planner_service.search.recall import Recalled
from planner_service.search.schedule import Schedule
from planner_service.search.stopping import Stopping


def microbatches(count: int) -> Instance:
    asked = request(job(rank_speed=[1.0, 0.5, 1.25, 0.8]), documents(count))
    asked.partition.CopyFrom(default_partition(asked.job, asked.batch))
    return Instance.of(asked)


def test_the_same_work_gets_the_same_schedule_back() -> None:
    instance = microbatches(9)
    graph = instance.graph()
    found = instance.candidate(graph, random_guide(graph, 1)._replace(thrift=np.zeros(graph.num_cells)))
    guide = Recalled.of(found).guide(instance.work, graph)
    assert guide is not None
    assert decode(graph, guide).makespan_us == found.makespan_us


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(instances(), instances(), st.integers(0, 100))
def test_whatever_is_recalled_gives_a_valid_schedule_of_other_work(one: Instance, other: Instance, seed: int) -> None:
    graph, of_other = one.graph(), other.graph()
    recalled = Recalled.of(one.candidate(graph, random_guide(graph, seed)))
    guide = recalled.guide(other.work, of_other)
    if guide is None:
        return
    assert sorted(guide.position.tolist()) == list(range(len(of_other.need)))
    candidate = other.candidate(of_other, guide)
    assert candidate.makespan_us < NEVER
    assert not other.faults(Schedule.of(candidate))


def test_a_search_starts_from_what_is_recalled() -> None:
    """A well searched schedule of ten microbatches is worth more to eleven than what a search begins with."""
    searched = microbatches(10)
    start, _ = quick_schedule(searched.work, seeds=8)
    portfolio = Portfolio(best=start, stopping=Stopping(seconds=1, max_evaluations=4000), cp_sat=False)
    portfolio.run()
    following = microbatches(11)
    poor = following.candidate(following.graph(), random_guide(following.graph(), 0))
    search = Portfolio(best=poor, stopping=Stopping(seconds=1, max_evaluations=1), recalled=Recalled.of(portfolio.best))
    search.run()
    assert search.steps[1].engine == "priorities of the last batch"
    assert search.steps[1].makespan_us < poor.makespan_us
