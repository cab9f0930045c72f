"""The paper's set-ups: ours against every baseline and against the paper's own method, at equal CPU time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner_service.bench.case import CLEARED, GIVEN, HALVED
from planner_service.bench.ours import OURS, OURS_WHOLE, our_row, plan_seconds
from planner_service.bench.papers import AS_WRITTEN, TUNED, paper_row
from planner_service.bench.peers import load_peers, peer_rows
from planner_service.bench.suites.suite import Suite, batches

if TYPE_CHECKING:
    from dip.planner.v1 import planner_pb2 as pb

    from planner_service.bench.case import Case, Row
    from planner_service.bench.settings import Settings

PLANS, BASELINES_SECONDS = 9, 4.0
"""For the expected time: our plans and those of the paper's method; all baselines."""


def cases(settings: Settings) -> list[Case]:
    """Each batch of the settings."""
    return batches(settings, seconds=PLANS * plan_seconds(settings) + BASELINES_SECONDS)


def measure(case: Case, settings: Settings) -> list[Row]:
    """Plan a batch in every way, with memory as given, and ours with limits cleared and halved too."""
    rows: list[Row] = []
    for memory in (GIVEN, CLEARED, HALVED):
        request = case.request(split=False, memory=memory)
        whole, plan, spent = our_row(case, request, settings, method=OURS_WHOLE, memory=memory)
        split, _, split_spent = our_row(case, case.request(memory=memory), settings, method=OURS, memory=memory)
        rows += [split, whole]
        if memory != CLEARED:
            # as much as ours took, whichever of the two took more
            most_ms = max(spent.on_one_core_ms, split_spent.on_one_core_ms) or settings.budget_ms
            rows += _paper(case, request, plan, most_ms, memory)
    rows += peer_rows(case, case.request(split=False), load_peers(settings.baselines).baselines.values())
    return rows


def _paper(case: Case, request: pb.PlanRequest, plan: pb.Plan | None, budget_ms: int, memory: str) -> list[Row]:
    """Run the paper's method as written, and on our partition and sub-microbatches."""
    rows = []
    if memory == GIVEN:
        rows.append(paper_row(case, request, method=AS_WRITTEN, memory=memory, budget_ms=budget_ms))
    if plan is not None:
        rows.append(paper_row(case, request, method=TUNED, memory=memory, budget_ms=budget_ms, like=plan))
    return rows


PAPER = Suite(
    name="paper",
    about="the paper's set-ups against every baseline and the paper's own method",
    cases=cases,
    measure=measure,
)
