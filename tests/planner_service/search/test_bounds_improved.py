"""Windows on all ranks: what quick bounds miss is proven, and nothing that a schedule contradicts."""

from __future__ import annotations

import itertools

import pytest
from cases import job, module, request
from dip.bounds import chain_bound_us
from dip.fallback import fitting_parts
from dip.job import Job
from dip.partition import default_partition
from dip.work import Work, chunks_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_work import Instance, instances, random_guide

from planner_service.search.bounds import improved_bound_us, lower_bound_us
from planner_service.search.bounds.improved import is_refuted
from planner_service.search.bounds.tasks import fastest_tasks
from planner_service.search.decoders import decode

SLOW = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


@SLOW
@given(instances(), st.integers(0, 100))
def test_no_schedule_beats_it(instance: Instance, seed: int) -> None:
    graph = instance.graph()
    makespan = decode(graph, random_guide(graph, seed)).makespan_us
    quick, improved = lower_bound_us(instance.work), improved_bound_us(instance.work, incumbent_us=makespan)
    assert 0 < quick <= improved <= makespan
    assert not is_refuted(fastest_tasks(instance.work), makespan)


@SLOW
@given(instances(limited=False))
def test_the_quick_bound_is_no_weaker_than_that_by_chains(instance: Instance) -> None:
    if not instance.work.job.split_backward:
        assert lower_bound_us(instance.work) >= chain_bound_us(instance.work)


@SLOW
@given(instances())
def test_what_is_too_short_for_the_quick_bound_is_refuted(instance: Instance) -> None:
    tasks = fastest_tasks(instance.work)
    assert is_refuted(tasks, lower_bound_us(instance.work) - 1)


def two_through_three_ranks() -> Work:
    """Forwards of a large and a small microbatch, of 52 and 24 us on each of three ranks, no time for hops."""
    spec = job([module("m", 3)], ranks=3)
    spec.cluster.link_latency_us = spec.cluster.link_bytes_per_us = 0
    for run in spec.model.modules[0].layers:
        run.cost.attention.Clear()
    asked = request(spec, [[{"m": [64]}], [{"m": [8]}]], forward_only=True)
    made = Job.from_spec(spec)
    chunks = chunks_of(made, default_partition(spec))
    parts = fitting_parts(made, asked.batch, chunks, [None] * made.ranks)
    return Work(job=made, forward_only=True, chunks=chunks, parts=parts)


def test_a_task_in_the_way_on_every_rank_is_in_the_way() -> None:
    """The large one alone takes 156; the small one delays it on rank 0, or follows it on each of the ranks."""
    work = two_through_three_ranks()
    assert lower_bound_us(work) == 3 * 52
    assert improved_bound_us(work, incumbent_us=400) == 3 * 52 + 24


def test_a_schedule_that_cannot_be_beaten_is_proven_to_be_optimal() -> None:
    work = two_through_three_ranks()
    assert improved_bound_us(work, incumbent_us=180) == 180
    assert is_refuted(fastest_tasks(work), 179)
    assert not is_refuted(fastest_tasks(work), 180)


@pytest.mark.parametrize(("asked_before", "proven_us"), [(0, 3 * 52), (1, 3 * 52), (30, 3 * 52 + 24)])
def test_out_of_time_what_is_proven_by_then_counts(asked_before: int, proven_us: int) -> None:
    work = two_through_three_ranks()
    answers = itertools.chain([False] * asked_before, itertools.repeat(True))
    assert improved_bound_us(work, incumbent_us=400, out_of_time=lambda: next(answers)) == proven_us


def test_work_without_tasks_takes_no_time() -> None:
    spec = job([module("m", 2)], ranks=2)
    made = Job.from_spec(spec)
    work = Work(job=made, forward_only=False, chunks=chunks_of(made, default_partition(spec)), parts=[])
    assert lower_bound_us(work) == improved_bound_us(work, incumbent_us=10) == 0
