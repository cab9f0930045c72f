"""Search over time: ours, the paper's tree search and random search, on one partition and the same sub-microbatches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner_service.bench.case import Case
from planner_service.bench.overhead import INSTANCES, THOUSAND, build_work
from planner_service.bench.papers import AS_WRITTEN, RANDOM, paper_progress
from planner_service.bench.suites.suite import Suite
from planner_service.search.decoders import NEVER
from planner_service.search.portfolio import Portfolio
from planner_service.search.quick import quick_schedule
from planner_service.search.stopping import Stopping

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dip.planner.v1 import planner_pb2 as pb

    from planner_service.bench.case import Row
    from planner_service.bench.settings import Settings

SEARCH = "ours"
BUDGETS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0)
LONG = 60
"""Budgets of our search as shares of the settings'; the long run is what the others are compared with."""

PAPER_LONG = 10
"""Budget of the paper's method and of random search, as a share of the settings': the paper gives 10 s."""

START_SEEDS = 3
"""As when choices are tried: what a search starts from in the planner."""

WORTH_A_ROW = 0.0005
"""Share of the makespan by which a step must shorten it."""

SIZES = {"1,000 tasks": THOUSAND, "2,500 tasks": INSTANCES["64"]}


def cases(settings: Settings) -> list[Case]:
    """Both sizes, of the first seed."""
    shares = sum(BUDGETS) + LONG + 2 * PAPER_LONG
    return [
        Case(
            config="vlm-s",
            mix="web",
            seed=settings.seeds[0],
            microbatches=instance.microbatches,
            variant=variant,
            seconds=5 + shares * settings.budget_ms / 1000,
        )
        for variant, instance in SIZES.items()
    ]


def measure(case: Case, settings: Settings) -> list[Row]:
    """Search with each budget, and note every improvement. Building the problem does not count, the start does."""
    request = SIZES[case.variant].request(case.seed)
    rows: list[Row] = []
    for share in (*BUDGETS, LONG):
        budget_ms = max(1, round(share * settings.budget_ms))
        rows += _rows(case, SEARCH, budget_ms, _ours(request, budget_ms, settings, case.seed))
    for method in (AS_WRITTEN, RANDOM):
        budget_ms = PAPER_LONG * settings.budget_ms
        steps = paper_progress(request, method=method, budget_ms=budget_ms, seed=case.seed)
        rows += _rows(case, method, budget_ms, steps)
    return rows


def _ours(request: pb.PlanRequest, budget_ms: int, settings: Settings, seed: int) -> list[tuple[int, int]]:
    """Improvements: after how many milliseconds, to what makespan."""
    work = build_work(request)
    stopping = Stopping(seconds=budget_ms / 1000)
    start, _ = quick_schedule(work, seeds=START_SEEDS)
    portfolio = Portfolio(best=start, stopping=stopping, seed=seed, cores=settings.cores)
    portfolio.run()
    return [(step.elapsed_ms, step.makespan_us) for step in portfolio.steps]


def _rows(case: Case, method: str, budget_ms: int, steps: Iterable[tuple[int, int]]) -> list[Row]:
    """Row for each step that is worth one, and for the last."""
    best: dict[int, int] = {}
    shown = reached = NEVER
    last_ms = 0
    for elapsed_ms, makespan_us in steps:
        if makespan_us < reached:
            reached, last_ms = makespan_us, elapsed_ms
        if reached < (1 - WORTH_A_ROW) * shown:
            best[elapsed_ms] = shown = reached
    best[last_ms] = reached
    return [
        case.row(size=case.variant, method=method, budget_ms=budget_ms, elapsed_ms=elapsed, makespan_us=makespan)
        for elapsed, makespan in best.items()
    ]


PROGRESS = Suite(
    name="progress",
    about="search over time against the paper's method and random search",
    cases=cases,
    measure=measure,
    alone=True,
)
