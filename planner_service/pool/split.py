"""A plan cut into what each rank is sent, serialized where it was made."""

from __future__ import annotations

from dip.digests import batch_digest, partition_digest, schedule_digest
from dip.planner.v1 import planner_pb2 as pb

from planner_service.pool.messages import SplitPlan, Step


def split_plan(request: pb.PlanRequest, plan: pb.Plan, iteration: int | None) -> SplitPlan:
    """Serialize a plan for everybody who will ask for it.

    Parameters
    ----------
    request
        What the plan answers.
    plan
        A complete plan, ranks in order.
    iteration
        The iteration that it is streamed for; None makes the Plan call's answer instead.
    """
    responses: tuple[bytes, ...] = ()
    if iteration is None:
        answer = pb.PlanResponse(plan=plan).SerializeToString()
    else:
        answer = _answer(request, plan)
        responses = _responses(request, plan, iteration)
    return SplitPlan(
        answer=answer,
        responses=responses,
        makespan_us=plan.makespan_us,
        fallback=plan.fallback,
        lower_bound_us=plan.lower_bound_us,
        steps=tuple(
            Step(elapsed_ms=step.elapsed_ms, engine=step.engine, makespan_us=step.makespan_us)
            for step in plan.search.steps
        ),
        search_ms=plan.search.elapsed_ms,
    )


def _answer(request: pb.PlanRequest, plan: pb.Plan) -> bytes:
    """Serialize a GetPlanResponse without what the ranks' responses hold, which is most of it."""
    answer = pb.GetPlanResponse(request=request, plan=plan)
    answer.plan.ClearField("sub_microbatches")
    answer.plan.ClearField("ranks")
    return answer.SerializeToString()


def _responses(request: pb.PlanRequest, plan: pb.Plan, iteration: int) -> tuple[bytes, ...]:
    streamed = pb.StreamedSchedule(
        sub_microbatches=plan.sub_microbatches,
        batch_digest=batch_digest(request.batch),
        partition_digest=partition_digest(plan.partition),
        schedule_digests=[schedule_digest(schedule) for schedule in plan.ranks],
        makespan_us=plan.makespan_us,
        fallback=plan.fallback,
    )
    response = pb.StreamSchedulesResponse(iteration=iteration, schedule=streamed)
    responses = []
    for schedule in plan.ranks:
        response.schedule.schedule.CopyFrom(schedule)
        responses.append(response.SerializeToString(deterministic=True))
    return tuple(responses)
