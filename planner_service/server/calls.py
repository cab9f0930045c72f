"""Plan: one batch planned while its caller waits."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from dip.errors import InvalidRequestError
from dip.validation import validate_plan_request

from planner_service.access import current_caller
from planner_service.pool import (
    Cancelled,
    Failed,
    Planned,
    PlanTask,
    Refused,
    SolverPool,
    budget_within_ms,
    solve_limit_s,
)
from planner_service.pool.budgets import FIRST_BUDGET_MS
from planner_service.server import refusals
from planner_service.server.marks import marked_answer
from planner_service.server.places import Places
from planner_service.server.telling import tell_solved
from planner_service.tracing import tracer

if TYPE_CHECKING:
    from dip.planner.v1 import planner_pb2 as pb

    from planner_service.server.handlers import Context

CALLS_LANE: Final = ""
"""All calls of Plan, and all registrations, share one turn beside the jobs, whose trainers wait: however many there
are, a batch waits for one of them at most. In it clients take turns (`Places`)."""

_ANSWER_MARGIN_S: Final = 0.25
_NO_DEADLINE_S: Final = 365 * 24 * 3600.0


class PlanningCalls:
    """Answers Plan.

    Parameters
    ----------
    max_calls
        Calls that may wait or run; half of them of one client.
    max_budget_ms, grace_ms
        The longest search, and what it may overrun by.
    """

    def __init__(self, pool: SolverPool, *, max_calls: int, max_budget_ms: int, grace_ms: int) -> None:
        self._pool = pool
        self._max_calls = max_calls
        self._max_budget_ms = max_budget_ms
        self._grace_ms = grace_ms
        self._calls = 0
        self._places = Places()

    async def plan(self, request: pb.PlanRequest, context: Context) -> bytes:
        """Plan a batch; the answer is a serialized PlanResponse.

        Raises
        ------
        InvalidRequestError, RefusalError
            FAILED_PRECONDITION where it cannot fit, DEADLINE_EXCEEDED where no answer could reach the caller in time.
        """
        if self._calls >= self._max_calls:
            raise refusals.exhausted(f"{self._calls} calls of Plan are running already", retry_ms=1_000)
        if self._places.taken() >= max(1, self._max_calls // 2):
            whose = f"calls of Plan of {current_caller().name}"
            raise refusals.exhausted(f"{self._places.taken()} {whose} are running already", retry_ms=1_000)
        self._calls += 1
        try:
            with self._places.place() as order:
                await asyncio.to_thread(validate_plan_request, request)
                return await self._solve(request, context, order)
        finally:
            self._calls -= 1

    async def _solve(self, request: pb.PlanRequest, context: Context, order: tuple[int, ...]) -> bytes:
        left_s = remaining_s(context)
        if left_s is not None and left_s <= _ANSWER_MARGIN_S:
            # A worker that began would be killed, and others' solves would wait for a fresh one.
            raise refusals.out_of_time(f"{left_s * 1000:.0f} ms are left, a plan takes {_ANSWER_MARGIN_S:g} s and more")
        budget_ms, limit_s = self._times(request, left_s)
        solve = self._pool.submit(
            PlanTask(request=request.SerializeToString(deterministic=True), budget_ms=budget_ms),
            lane=CALLS_LANE,
            order=order,
            limit_s=limit_s,
        )
        try:
            with tracer().part("solve") as span:
                result = await solve.result()
                if isinstance(result, Planned):
                    tell_solved(span, result)
            match result:
                case Planned() as planned:
                    return marked_answer(planned)
                case Refused(error=InvalidRequestError() as error):
                    raise refusals.invalid(error)
                case Refused(error=error):
                    raise refusals.failed_precondition(str(error))
                case Failed(reason=reason):
                    raise refusals.unavailable(f"the search failed: {reason}")
                case Cancelled():
                    raise refusals.draining()
                case other:
                    raise TypeError(f"a plan was asked for, the pool answered {other!r}")
        finally:
            solve.give_up()  # the caller may be gone

    def _times(self, request: pb.PlanRequest, left_s: float | None) -> tuple[int, float]:
        """Milliseconds to search, seconds until the worker is killed: within the caller's deadline, if it has one."""
        options = request.job.options
        kept = bool(request.partition.chunks)
        if options.budget_ms > 0:
            budget_ms = min(options.budget_ms, self._max_budget_ms)
        elif options.max_evaluations > 0:
            budget_ms = self._max_budget_ms
        else:
            budget_ms = min(FIRST_BUDGET_MS, self._max_budget_ms)
        limit_s = solve_limit_s(budget_ms, grace_ms=self._grace_ms, partition_is_kept=kept)
        if left_s is not None:
            limit_s = min(limit_s, left_s - _ANSWER_MARGIN_S)
            within_ms = budget_within_ms(limit_s, grace_ms=self._grace_ms, partition_is_kept=kept)
            budget_ms = min(budget_ms, within_ms)
        return budget_ms, limit_s


def remaining_s(context: Context) -> float | None:
    """Seconds until the caller's deadline; None where it has none, which gRPC states as 292 years."""
    remaining = context.time_remaining()
    return None if remaining is None or remaining > _NO_DEADLINE_S else max(0.0, remaining)
