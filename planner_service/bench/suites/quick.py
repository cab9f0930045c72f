"""Everything once, in about a minute: ours, the paper's method and every baseline on the first batch of each set-up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner_service.bench.ours import plan_seconds
from planner_service.bench.suites.paper import BASELINES_SECONDS, PLANS, measure
from planner_service.bench.suites.suite import Suite, batches

if TYPE_CHECKING:
    from planner_service.bench.case import Case
    from planner_service.bench.settings import Settings


def cases(settings: Settings) -> list[Case]:
    """The first batch of each set-up."""
    seconds = PLANS * plan_seconds(settings) + BASELINES_SECONDS
    return batches(settings, seconds=seconds)[: len(settings.configs)]


QUICK = Suite(name="quick", about="the suite paper on the first batch of each set-up", cases=cases, measure=measure)
