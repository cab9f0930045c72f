"""Shows that every rule of the sub-microbatches is held: each instance in exactly one, as the batch has it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tiny_plan import tiny_plan, tiny_request

from planner_service.check import check_plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from dip.planner.v1 import planner_pb2 as pb

BROKEN: dict[str, tuple[Callable[[pb.Plan], object], str]] = {
    "identifier twice": (lambda p: setattr(p.sub_microbatches[1], "id", 0), "sub-microbatch 0 is there twice"),
    "unknown module": (lambda p: setattr(p.sub_microbatches[0], "module", "audio"), "no module 'audio'"),
    "unknown microbatch": (lambda p: setattr(p.sub_microbatches[0], "microbatch", 1), "no microbatch 1"),
    "negative microbatch": (lambda p: setattr(p.sub_microbatches[0], "microbatch", -1), "no microbatch -1"),
    "unknown sample": (
        lambda p: setattr(p.sub_microbatches[0].instances[0], "sample", 1),
        "sub-microbatch 0: there is no instance 0 of sample 1",
    ),
    "negative sample": (
        lambda p: setattr(p.sub_microbatches[0].instances[0], "sample", -1),
        "there is no instance 0 of sample -1",
    ),
    "unknown instance": (
        lambda p: setattr(p.sub_microbatches[1].instances[0], "index", 2),
        "there is no instance 2 of sample 0",
    ),
    "negative instance": (
        lambda p: setattr(p.sub_microbatches[1].instances[0], "index", -1),
        "there is no instance -1 of sample 0",
    ),
    "other units": (lambda p: setattr(p.sub_microbatches[1].instances[0], "units", 21), "21 units, it has 20"),
    "no instances": (lambda p: p.sub_microbatches.add(id=9, module="vision"), "sub-microbatch 9 has no instances"),
    "instance left out": (
        lambda p: p.sub_microbatches.pop(),
        "instance 0 of sample 0, microbatch 0, language: in 0 sub-microbatches",
    ),
    "instance twice": (
        lambda p: p.sub_microbatches[0].instances.add(index=1, units=20),
        "instance 1 of sample 0, microbatch 0, vision: in 2 sub-microbatches",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_a_fault(name: str) -> None:
    breaks, says = BROKEN[name]
    plan = tiny_plan()
    breaks(plan)
    faults = check_plan(tiny_request(), plan).faults
    assert any(says in fault for fault in faults), faults


def test_the_size_that_was_asked_for_holds_for_more_than_one_instance() -> None:
    request, plan = tiny_request(), tiny_plan()
    request.job.options.sub_microbatch_units["vision"] = 15
    assert check_plan(request, plan).faults == ()
    plan.sub_microbatches[0].instances.extend(plan.sub_microbatches[1].instances)
    plan.sub_microbatches.pop(1)
    assert check_plan(request, plan).faults == ("sub-microbatch 0 has 30 units, at most 15 were asked for",)
