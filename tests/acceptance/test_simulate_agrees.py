"""Shows that the simulator takes and holds for every plan what the independent checker finds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import corners
import pytest
from tiny_plan import split_tiny_plan, split_tiny_request, tiny_plan, tiny_request

from planner_service.simulate import simulate

if TYPE_CHECKING:
    from dip.planner.v1 import planner_pb2 as pb

    from .conftest import PeerChecker, Planned


def agrees(peer: PeerChecker, request: pb.PlanRequest, plan: pb.Plan) -> None:
    faults, figures = peer.check(request, plan)
    found = simulate(request, plan)
    assert faults == []
    assert found.makespan_us == figures["makespan_us"]
    assert list(found.peak_bytes) == figures["peak_memory_bytes"]


@pytest.mark.parametrize("kind", ["plan", "fallback"])
@pytest.mark.parametrize("name", corners.FITTING)
def test_every_corner_of_the_contract(peer: PeerChecker, planned: Planned, name: str, kind: str) -> None:
    agrees(peer, *planned.copy(name, kind))


def test_the_plans_worked_out_by_hand(peer: PeerChecker) -> None:
    agrees(peer, tiny_request(), tiny_plan())
    agrees(peer, split_tiny_request(), split_tiny_plan())
