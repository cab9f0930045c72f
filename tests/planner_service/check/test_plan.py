"""Shows that valid plans have no faults, that figures are those worked out by hand, and what ends a check early."""

from __future__ import annotations

import corners
import pytest
from dip.digests import plan_digest
from dip.errors import InvalidRequestError
from dip.fallback import fallback_plan
from dip.partition import default_partition
from dip.planner.v1 import planner_pb2 as pb
from tiny_plan import IDEAL_US, MAKESPAN_US, PEAKS, split_tiny_plan, split_tiny_request, tiny_plan, tiny_request

from planner_service.check import Figures, check_plan


def test_a_plan_worked_out_by_hand_is_valid() -> None:
    result = check_plan(tiny_request(), tiny_plan())
    assert result.faults == ()
    assert result.warnings == ()
    assert result.figures == Figures(
        makespan_us=MAKESPAN_US,
        lower_bound_us=280,
        gap=round(MAKESPAN_US / 280 - 1, 4),
        over_ideal=round(MAKESPAN_US / IDEAL_US - 1, 4),
        tasks=6,
        peak_memory_bytes=PEAKS,
    )


def test_a_plan_with_a_split_backward_is_valid_where_the_job_allows_the_split() -> None:
    result = check_plan(split_tiny_request(), split_tiny_plan())
    assert result.faults == ()
    assert result.figures is not None
    assert result.figures.peak_memory_bytes == (400, 800)
    assert any(
        "missing: backward of sub-microbatch 2" in f for f in check_plan(tiny_request(), split_tiny_plan()).faults
    )


@pytest.mark.parametrize("name", corners.FITTING)
def test_fallback_plans_are_valid(name: str) -> None:
    request = corners.FITTING[name]()
    partition = request.partition if request.partition.chunks else default_partition(request.job, request.batch)
    result = check_plan(request, fallback_plan(request.job, partition, request.batch))
    assert result.faults == ()
    assert result.warnings == ()


def test_faults_of_the_partition_end_the_check() -> None:
    plan = tiny_plan()
    plan.partition.chunks[0].rank = 7
    plan.ranks[0].peak_memory_bytes = 1
    result = check_plan(tiny_request(), plan)
    assert len(result.faults) == 1
    assert result.figures is None


def test_an_empty_plan_is_not_valid() -> None:
    assert check_plan(tiny_request(), pb.Plan()).faults


def test_an_invalid_request_is_the_callers_fault() -> None:
    request = tiny_request()
    request.job.cluster.ranks = 0
    with pytest.raises(InvalidRequestError, match=r"job\.cluster\.ranks"):
        check_plan(request, tiny_plan())


def test_another_digest_is_a_warning() -> None:
    plan = tiny_plan()
    plan.digest = bytes(32)
    result = check_plan(tiny_request(), plan)
    assert result.faults == ()
    assert plan_digest(plan, tiny_request().batch).hex() in result.warnings[0]


def test_a_plan_of_another_batch_has_another_digest() -> None:
    request = tiny_request()
    request.batch.microbatches.add()
    assert check_plan(request, tiny_plan()).warnings
