"""How long each batch is searched: what its job asks for, or what the iterations of late leave time for."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final

from planner_service.pool import choose_budget_ms, solve_limit_s

if TYPE_CHECKING:
    from planner_service.pool import SplitPlan
    from planner_service.server.jobs import CurrentJob

_MAKESPANS_REMEMBERED: Final = 16
_JOBS_REMEMBERED: Final = 1024
"""Jobs end at other planners, too, and nobody tells."""


class Budgets:
    """Search times by job.

    Parameters
    ----------
    max_budget_ms, grace_ms
        The longest search, and what it may overrun by.
    """

    def __init__(self, *, max_budget_ms: int, grace_ms: int) -> None:
        self._max_budget_ms = max_budget_ms
        self._grace_ms = grace_ms
        self._makespans_us: OrderedDict[str, deque[int]] = OrderedDict()  # the job planned last comes last

    def search_ms(self, job: CurrentJob, *, workers: int) -> int:
        """Search time of a job's next plan, where so many solver processes share the work."""
        options = job.spec.options
        if options.budget_ms > 0:
            return min(options.budget_ms, self._max_budget_ms)
        if options.max_evaluations > 0:
            return self._max_budget_ms  # it stops by count; this only bounds it
        makespans_us = self._makespans_us.get(job.record.job_id, ())
        chosen_ms = choose_budget_ms(makespans_us, replicas=job.record.replicas, workers=workers)
        return min(chosen_ms, self._max_budget_ms)

    def limit_s(self, budget_ms: int) -> float:
        """Seconds after which a solve is killed; a job's partition is kept."""
        return solve_limit_s(budget_ms, grace_ms=self._grace_ms, partition_is_kept=True)

    def remember(self, job_id: str, plan: SplitPlan) -> None:
        """Note how long an iteration of a job is going to take."""
        if not plan.fallback:
            self._makespans_us.setdefault(job_id, deque(maxlen=_MAKESPANS_REMEMBERED)).append(plan.makespan_us)
            self._makespans_us.move_to_end(job_id)
            if len(self._makespans_us) > _JOBS_REMEMBERED:
                self._makespans_us.popitem(last=False)

    def forget(self, job_id: str) -> None:
        """Forget a job whose attempt is over."""
        self._makespans_us.pop(job_id, None)
