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


def marked_plan(planned: Planned) -> bytes:
    """Serialized GetPlanResponse without what ranks are sent; says so where the search was ended from outside."""
    return _marked(planned, pb.GetPlanResponse)


def marked_answer(planned: Planned) -> bytes:
    """Serialized PlanResponse; says so where the search was ended from outside."""
    return _marked(planned, pb.PlanResponse)


def _marked(planned: Planned, kind: type[pb.GetPlanResponse | pb.PlanResponse]) -> bytes:
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


def whole_answer(answer: bytes, responses: Iterable[bytes], reports: Iterable[bytes]) -> bytes:
    """Put a GetPlanResponse together from what is kept of a plan.

    Parameters
    ----------
    answer
        Serialized, without what ranks are sent.
    responses
        The serialized StreamSchedulesResponse of each rank, in rank order.
    reports
        Packed ones.
    """
    streamed = [pb.StreamSchedulesResponse.FromString(response).schedule for response in responses]
    plan = pb.Plan(sub_microbatches=streamed[0].sub_microbatches, ranks=[part.schedule for part in streamed])
    return b"".join((answer, pb.GetPlanResponse(plan=plan).SerializeToString(), *reports))
