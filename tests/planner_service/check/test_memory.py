"""Shows that what a rank holds is followed through time, and held against its limit and its own statement."""

from __future__ import annotations

import pytest
from tiny_plan import split_tiny_plan, split_tiny_request, tiny_plan, tiny_request

from planner_service.check import check_plan


def test_a_limit_is_kept_to_the_byte() -> None:
    request = tiny_request()
    request.job.cluster.memory_bytes.extend([400, 600])
    assert check_plan(request, tiny_plan()).faults == ()
    request.job.cluster.memory_bytes[1] = 599
    assert check_plan(request, tiny_plan()).faults == ("rank 1 holds 600 bytes, it may hold 599",)


def test_one_limit_is_that_of_all_ranks() -> None:
    request = tiny_request()
    request.job.cluster.memory_bytes.append(500)
    assert check_plan(request, tiny_plan()).faults == ("rank 1 holds 600 bytes, it may hold 500",)


@pytest.mark.parametrize(("off_by", "accepted"), [(16, True), (-16, True), (17, False), (-17, False)])
def test_a_stated_peak_is_the_one_that_is_held(off_by: int, accepted: bool) -> None:
    plan = tiny_plan()
    plan.ranks[0].peak_memory_bytes += off_by
    assert (check_plan(tiny_request(), plan).faults == ()) is accepted


def test_between_the_halves_other_bytes_are_kept() -> None:
    request = split_tiny_request()
    request.job.cluster.memory_bytes.append(799)
    assert check_plan(request, split_tiny_plan()).faults == ("rank 1 holds 800 bytes, it may hold 799",)


def test_what_ends_is_freed_before_what_starts_is_held() -> None:
    request, plan = tiny_request(), tiny_plan()
    # a second text whose forward starts when the first one's backward ends
    sample = request.batch.microbatches.add().samples.add()
    sample.instances["language"].units.append(40)
    plan.sub_microbatches.add(id=3, module="language", microbatch=1).instances.add(units=40)
    for like, start_us in ((2, 199), (3, 239)):
        action = plan.ranks[1].actions.add()
        action.CopyFrom(plan.ranks[1].actions[like])
        action.sub_microbatch = 3
        action.start_us, action.end_us = start_us, start_us + action.end_us - plan.ranks[1].actions[like].start_us
    plan.makespan_us = 359
    result = check_plan(request, plan)
    assert result.faults == ()
    assert result.figures is not None
    assert result.figures.peak_memory_bytes == (400, 600)


def test_nothing_is_kept_where_nothing_goes_backward() -> None:
    request, plan = tiny_request(), tiny_plan()
    request.batch.forward_only = True
    result = check_plan(request, plan)
    assert result.figures is not None
    assert result.figures.peak_memory_bytes == (100, 200)
