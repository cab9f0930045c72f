"""Shows that the independent checker accepts plans of all small cases, and that what cannot fit is explained."""

from __future__ import annotations

from typing import TYPE_CHECKING

import corners
import pytest
from dip.errors import CannotFitError
from dip.fallback import fallback_plan
from dip.partition import default_partition

from planner_service.planning import make_plan

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dip.planner.v1 import planner_pb2 as pb

    from .conftest import PeerChecker, Planned


@pytest.mark.parametrize("kind", ["plan", "fallback"])
@pytest.mark.parametrize("name", corners.FITTING)
def test_accepted(peer: PeerChecker, planned: Planned, name: str, kind: str) -> None:
    request, plan = planned.copy(name, kind)
    assert peer.check(request, plan)[0] == []
    assert plan.fallback is (kind == "fallback")


@pytest.mark.parametrize("name", corners.FITTING)
def test_the_bound_holds_for_both(planned: Planned, name: str) -> None:
    """A proven bound holds for every schedule of the same sub-microbatches on the same partition."""
    plan, fallback = planned.plans[name, "plan"], planned.plans[name, "fallback"]
    if (plan.partition, list(plan.sub_microbatches)) == (fallback.partition, list(fallback.sub_microbatches)):
        assert max(plan.lower_bound_us, fallback.lower_bound_us) <= min(plan.makespan_us, fallback.makespan_us)


def by_search(request: pb.PlanRequest) -> pb.Plan:
    return make_plan(request, budget_ms=50)


def by_fallback(request: pb.PlanRequest) -> pb.Plan:
    return fallback_plan(request.job, default_partition(request.job, request.batch), request.batch)


@pytest.mark.parametrize("plan", [by_search, by_fallback])
@pytest.mark.parametrize("name", corners.CANNOT_FIT)
def test_what_cannot_fit_names_rank_need_and_limit(
    shared: Path, name: str, plan: Callable[[pb.PlanRequest], pb.Plan]
) -> None:
    request = corners.CANNOT_FIT[name]()
    with pytest.raises(CannotFitError) as caught:
        plan(request)
    error = caught.value
    assert 0 <= error.rank < request.job.cluster.ranks
    assert error.available_bytes == request.job.cluster.memory_bytes[0] < error.needed_bytes
    assert all(str(number) in str(error) for number in (error.rank, error.needed_bytes, error.available_bytes))
