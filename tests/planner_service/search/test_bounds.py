"""The preemptive one-machine bound: equal to what trying every moment finds, and never below the bound by chains."""

from __future__ import annotations

import numpy as np
from dip.bounds import chain_bound_us
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_work import Instance, instances, random_guide

from planner_service.search.bounds import lower_bound_us, preemptive_bound
from planner_service.search.decoders import decode

SLOW = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
JOBS = st.lists(st.tuples(st.integers(0, 12), st.integers(1, 6), st.integers(0, 15)), min_size=1, max_size=7)


def by_subsets(jobs: list[tuple[int, int, int]]) -> int:
    """The same bound by its dual: over all sets of jobs, earliest head plus load plus shortest tail."""
    best = 0
    for chosen in range(1, 1 << len(jobs)):
        inside = [job for i, job in enumerate(jobs) if chosen >> i & 1]
        heads, times, tails = zip(*inside, strict=True)
        best = max(best, min(heads) + sum(times) + min(tails))
    return best


@settings(deadline=None)
@given(JOBS)
def test_it_is_the_worst_of_all_sets_of_jobs(jobs: list[tuple[int, int, int]]) -> None:
    """Carlier: Jackson's preemptive schedule is as long as the worst set's head, load and tail."""
    assert preemptive_bound(np.array(jobs, dtype=np.int64)) == by_subsets(jobs)


@SLOW
@given(instances(), st.integers(0, 100))
def test_no_schedule_beats_it_and_chains_do_not_exceed_it(instance: Instance, seed: int) -> None:
    graph = instance.graph()
    bound = lower_bound_us(instance.work)
    assert bound <= decode(graph, random_guide(graph, seed)).makespan_us
    assert bound > 0


@SLOW
@given(instances(limited=False))
def test_it_is_no_weaker_than_the_bound_by_chains(instance: Instance) -> None:
    if not instance.work.job.split_backward:
        assert lower_bound_us(instance.work) >= chain_bound_us(instance.work)
