"""What the service adds to an answer that a worker serialized, without parsing it.

Serialized messages that stand one after another parse as one merged message: repeated fields are appended and
messages merged (protobuf's encoding guide, "Last One Wins").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dip.planner.v1 import planner_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable

    from planner_service.pool import Planned


def marked_answer(planned: Planned, kind: type[pb.GetPlanResponse | pb.PlanResponse]) -> bytes:
    """Serialized answer of that kind; where the search was ended from outside, its report says so."""
    if not planned.interrupted:
        return planned.plan.answer
    step = pb.SearchStep(
        elapsed_ms=planned.elapsed_ms,
        engine=f"interrupted: {planned.interrupted}",
        makespan_us=planned.plan.makespan_us,
    )
    mark = kind(plan=pb.Plan(search=pb.SearchReport(steps=[step])))
    return planned.plan.answer + mark.SerializeToString()


def packed_report(report: pb.ReportExecutionRequest) -> bytes:
    """Serialize a report so that it can be appended to a GetPlanResponse."""
    return pb.GetPlanResponse(reports=[report]).SerializeToString()


def with_reports(answer: bytes, reports: Iterable[bytes]) -> bytes:
    """Append packed reports to a serialized GetPlanResponse."""
    return b"".join((answer, *reports))
