"""Shows where the time of a run goes, what is held when, and what decides its length."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_orders import random_plan
from random_requests import partitions, plan_requests
from tiny_plan import split_tiny_plan, split_tiny_request, tiny_plan, tiny_request

from planner_service.simulate import simulate


def test_time_of_each_rank() -> None:
    found = simulate(tiny_request(), tiny_plan())
    first, second = found.ranks
    assert (first.busy_us, first.waiting_us, first.idle_us) == (120, 176, 176)
    assert (second.busy_us, second.waiting_us, second.idle_us) == (160, 39, 136)
    assert found.bubble == pytest.approx((176 + 136) / (2 * 296))


def test_memory_over_time() -> None:
    assert simulate(tiny_request(), tiny_plan()).memory(0) == [
        (0, 200),
        (10, 400),
        (30, 400),
        (206, 400),
        (236, 300),
        (296, 100),
    ]
    # the text keeps 400 until its input half starts, and 600 until its weight half ends
    assert simulate(split_tiny_request(), split_tiny_plan()).memory(1) == [
        (0, 200),
        (39, 600),
        (79, 800),
        (159, 800),
        (199, 200),
    ]


def test_memory_of_a_rank_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="rank is 2, must be 0 to 1"):
        simulate(tiny_request(), tiny_plan()).memory(2)


def test_critical_path() -> None:
    path = simulate(tiny_request(), tiny_plan()).critical_path()
    assert [(task.rank, task.action) for task in path] == [(0, 0), (0, 2), (1, 2), (1, 3), (0, 6), (0, 7)]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_times_and_bytes_add_up(data: st.DataObject) -> None:
    request = data.draw(plan_requests())
    request.partition.CopyFrom(data.draw(partitions(request.job)))
    found = simulate(request, random_plan(request, random.Random(data.draw(st.integers(0, 2**32)))))
    for use in found.ranks:
        assert use.busy_us + use.idle_us == found.makespan_us
        assert 0 <= use.waiting_us <= use.idle_us
        line = found.memory(use.rank)
        assert [at for at, _ in line] == sorted({at for at, _ in line})
        assert max(held for _, held in line) <= use.peak_bytes
        assert line[-1][1] == use.static_bytes
    path = found.critical_path()
    assert not path or (path[0].start_us, path[-1].end_us) == (0, found.makespan_us)
    for earlier, later in pairwise(path):
        assert earlier.end_us <= later.start_us
        assert earlier.rank != later.rank or earlier.end_us == later.start_us
