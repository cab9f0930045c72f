"""A claimed batch on its way through the pool, to its outcome in the store."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

from planner_service import logs, metrics, tracing
from planner_service.pool import Cancelled, Failed, Planned, PlanTask, Refused, SolverPool
from planner_service.pool.pool import FALLBACK_LIMIT_S
from planner_service.server.marks import marked_plan
from planner_service.server.recent import plan_summary
from planner_service.server.refusals import RefusalError
from planner_service.server.telling import about, tell_settled, tell_solved
from planner_service.store import AttemptOverError, BatchKey, Claim, Outcome, PlanStore, StoreError, TooOldError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from planner_service.pool import Solve
    from planner_service.pool.solve import Result
    from planner_service.server.budgets import Budgets
    from planner_service.server.jobs import CurrentJob, Jobs
    from planner_service.server.remembered import Remembered

T = TypeVar("T")

TRIES_WITH_SEARCH: Final = 3
"""Planners that may end over a batch before it is planned without a search."""

MOST_TRIES: Final = 6
"""Planners that may end over a batch before it gets a reason in place of a plan."""

_FIRST_RETRY_S, _LONGEST_RETRY_S = 0.05, 2.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Means:
    """What a batch is planned with."""

    store: PlanStore
    pool: SolverPool
    jobs: Jobs
    budgets: Budgets
    remembered: Remembered


class ClaimedBatch:
    """One claim. Made in an event loop, it goes on by itself until the store has an outcome or the claim is let go.

    Attributes
    ----------
    claim
        The batch.
    task
        Ends with it, and never with an error that is foreseen.
    begun
        Whether a worker has it, or is going to, or will not.
    unwanted
        Whether its outcome is of no use any more.
    """

    def __init__(self, claim: Claim, means: Means) -> None:
        self.claim = claim
        self.begun = False
        self.unwanted = False
        self._means = means
        self._solve: Solve | None = None
        self._planned: Planned | None = None
        self._began_s = time.monotonic()
        self._kind: metrics.OutcomeKind = "remembered"
        self.task: asyncio.Task[None] = asyncio.create_task(self._go_on())

    def withdraw(self) -> None:
        """Nobody wants the outcome any more; a worker that has the batch may end it in its own time."""
        self.unwanted = True
        if self._solve is not None:
            self._solve.withdraw()

    def cancel(self) -> None:
        """Nobody wants the outcome any more, and the worker is wanted back at once."""
        self.unwanted = True
        if self._solve is not None:
            self._solve.cancel()

    def abandon(self) -> None:
        """Let go of it without an outcome: this planner stops."""
        self.cancel()
        self.task.cancel()

    async def _go_on(self) -> None:
        key = self.claim.key
        # Not the fields of the call that brought the batch, if it was claimed in the same step.
        with logs.afresh(**about(key)), tracing.tracer().planning(key) as span:
            span.set(tries=self.claim.tries)
            await self._plan(key)

    async def _plan(self, key: BatchKey) -> None:
        try:
            job = await self._patiently(lambda: self._means.jobs.any_attempt(key.replica.job_id))
        except RefusalError as error:
            _log.debug("claim is let go: %s", error)
            return
        if job is None or job.record.attempt != key.replica.attempt:
            return
        outcome = self._means.remembered.outcome(self.claim) or await self._outcome(job)
        self.begun = True
        if outcome is not None and await self._settle(outcome):
            self._means.remembered.keep(self.claim, outcome)

    async def _outcome(self, job: CurrentJob) -> Outcome | None:
        """Have the batch planned; None where nobody wants it any more."""
        tries = self.claim.tries
        if tries >= MOST_TRIES:
            self._kind = "abandoned"
            return Outcome(unplanned_reason=f"{tries} planners ended while they planned it")
        budgets = self._means.budgets
        budget_ms = budgets.search_ms(job, workers=self.claim.workers)
        task = PlanTask(
            request=job.request_part + self.claim.batch,
            budget_ms=budget_ms,
            iteration=self.claim.key.iteration,
            fallback=tries >= TRIES_WITH_SEARCH,
        )
        self._solve = self._means.pool.submit(
            task,
            lane=self.claim.key.replica.job_id,
            order=(self.claim.key.iteration, self.claim.key.replica.replica),
            limit_s=FALLBACK_LIMIT_S if task.fallback else budgets.limit_s(budget_ms),
        )
        self.begun = True
        with tracing.tracer().part("solve") as span:
            span.set(budget_ms=budget_ms, searched=not task.fallback)
            outcome = self._outcome_of(await self._solve.result())
            if self._planned is not None:
                tell_solved(span, self._planned)
        return outcome

    def _outcome_of(self, result: Result) -> Outcome | None:
        match result:
            case Cancelled():
                return None  # the attempt is over, the batch came too late and is settled, or the planner stops
            case Planned() as planned:
                self._means.budgets.remember(self.claim.key.replica.job_id, planned.plan)
                if self.claim.tries >= TRIES_WITH_SEARCH:
                    planned = replace(planned, interrupted=f"{self.claim.tries} planners ended while they planned it")
                self._planned = planned
                self._kind = _kind_of(planned)
                return Outcome(
                    responses=planned.plan.responses, answer=marked_plan(planned), summary=plan_summary(planned)
                )
            case Refused(error=error):
                self._kind = "refused"
                return Outcome(unplanned_reason=str(error))
            case Failed(reason=reason):
                self._kind = "failed"
                return Outcome(unplanned_reason=f"the search failed: {reason}")
            case other:
                raise TypeError(f"a plan was asked for, the pool answered {other!r}")

    async def _settle(self, outcome: Outcome) -> bool:
        """Store the outcome; whether it stands."""
        key = self.claim.key
        try:
            with tracing.tracer().part("settle") as span:
                stands = await self._patiently(lambda: self._means.store.settle(key, self.claim.digest, outcome))
                span.set(stands=bool(stands), unplanned_reason=outcome.unplanned_reason or None)
        except (AttemptOverError, TooOldError) as error:
            _log.debug("outcome is dropped: %s", error)
            return False
        if stands:
            metrics.batch_settled(self._kind, time.monotonic() - self._began_s)
            tell_settled(outcome, self._planned)
        return bool(stands)

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T | None:
        """Ask the store, however long it is away: what was accepted is not lost over that, and costs no try.

        Returns
        -------
        object or None
            The answer; None where nobody wants it any more.
        """
        retry_s = _FIRST_RETRY_S
        while not self.unwanted:
            try:
                return await ask()
            except (AttemptOverError, TooOldError):
                raise
            except StoreError as error:
                _log.debug("asked again in %.2f s: %s", retry_s, error)
                await asyncio.sleep(retry_s)
                retry_s = min(_LONGEST_RETRY_S, 2 * retry_s)
        return None


def _kind_of(planned: Planned) -> metrics.OutcomeKind:
    if planned.plan.fallback or not planned.plan.steps:
        return "fixed"
    return "interrupted" if planned.interrupted else "search"
