"""Shows what traces and pictures are drawn from: every compute action, its microbatch and units, and the bubble."""

from __future__ import annotations

import pytest
from dip.planner.v1 import planner_pb2 as pb
from export_cases import COMPUTE, planned_request, reports_of
from tiny_plan import MAKESPAN_US, tiny_plan

from planner_service.export.timelines import measured_timeline, planned_timeline


def test_every_compute_action_is_there_once_with_its_times() -> None:
    _, plan = planned_request()
    timeline = planned_timeline(plan)
    expected = [
        (schedule.rank, a.module, a.chunk, a.sub_microbatch, a.kind, a.start_us, a.end_us)
        for schedule in plan.ranks
        for a in schedule.actions
        if a.kind in COMPUTE
    ]
    found = [(s.rank, s.module, s.chunk, s.sub_microbatch, s.kind, s.start_us, s.end_us) for s in timeline.spans]
    assert sorted(found) == sorted(expected)
    assert timeline.makespan_us == plan.makespan_us
    subs = {sub.id: sub for sub in plan.sub_microbatches}
    for span in timeline.spans:
        sub = subs[span.sub_microbatch]
        assert (span.module, span.microbatch) == (sub.module, sub.microbatch)
        assert span.units == sum(instance.units for instance in sub.instances)


def test_the_bubble_is_what_ranks_do_not_compute() -> None:
    plan = tiny_plan()
    busy = sum(a.end_us - a.start_us for s in plan.ranks for a in s.actions if a.kind in COMPUTE)
    timeline = planned_timeline(plan)
    assert timeline.makespan_us == MAKESPAN_US
    assert timeline.bubble_share == pytest.approx(1 - busy / (len(plan.ranks) * MAKESPAN_US))
    assert planned_timeline(pb.Plan()).bubble_share == 0


def test_measured_times_are_those_of_the_reports() -> None:
    plan = tiny_plan()
    timeline = measured_timeline(plan, reports_of(plan, late_us=50))
    assert timeline.makespan_us == MAKESPAN_US + 50
    assert len(timeline.spans) == len(planned_timeline(plan).spans)


def test_reports_of_another_plan_or_rank_are_refused() -> None:
    plan = tiny_plan()
    reports = reports_of(plan)
    reports[0].plan_digest = b"another"
    with pytest.raises(ValueError, match="another plan"):
        measured_timeline(plan, reports)
    reports = reports_of(plan)
    reports[0].rank = 9
    with pytest.raises(ValueError, match=r"ranks \[9\]"):
        measured_timeline(plan, reports)
