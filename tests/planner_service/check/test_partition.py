"""Shows that every rule of the partition is held."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from dip.planner.v1 import planner_pb2 as pb
from tiny_plan import tiny_plan, tiny_request

from planner_service.check import check_plan

if TYPE_CHECKING:
    from collections.abc import Callable

BROKEN: dict[str, tuple[Callable[[pb.Partition], object], str]] = {
    "unknown module": (lambda p: p.chunks.add(module="audio", num_layers=1), "'audio', which is no module"),
    "unknown rank": (lambda p: setattr(p.chunks[1], "rank", 2), "on rank 2 of 2"),
    "negative rank": (lambda p: setattr(p.chunks[1], "rank", -1), "on rank -1 of 2"),
    "no chunk": (lambda p: p.chunks.pop(), "language are numbered []"),
    "wrong number": (lambda p: setattr(p.chunks[1], "index", 1), "language are numbered [1]"),
    "number twice": (lambda p: p.chunks.append(p.chunks[0]), "vision are numbered [0, 0]"),
    "not from the first layer": (lambda p: setattr(p.chunks[0], "first_layer", 1), "from 1, the next layer is 0"),
    "too many layers": (lambda p: setattr(p.chunks[0], "num_layers", 2), "hold 2 layers, it has 1"),
    "a chunk without layers": (
        lambda p: p.chunks.append(pb.Chunk(module="vision", index=1, rank=1, first_layer=1)),
        "chunk 1 of vision has 0 layers from 1",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_a_fault(name: str) -> None:
    breaks, says = BROKEN[name]
    plan = tiny_plan()
    breaks(plan.partition)
    faults = check_plan(tiny_request(), plan).faults
    assert any(says in fault for fault in faults), faults


def test_the_segments_that_were_asked_for_are_there() -> None:
    request = tiny_request()
    request.job.model.modules[0].layers[0].count = 2
    request.job.options.segments["vision"] = 1
    plan = tiny_plan()
    plan.partition.chunks[0].num_layers = 2
    assert "partition: 1 chunks of vision, 1 segments were asked for" in check_plan(request, plan).faults


def test_a_loaded_partition_is_kept() -> None:
    request = tiny_request()
    request.partition.CopyFrom(tiny_plan().partition)
    assert check_plan(request, tiny_plan()).faults == ()
    request.partition.chunks[0].rank, request.partition.chunks[1].rank = 1, 0
    assert check_plan(request, tiny_plan()).faults == ("partition: is not the loaded one that the request keeps",)
