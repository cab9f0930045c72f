"""The large set-ups, which the paper simulated as well: GPT 175B after a ViT, and a DiT of 30B after Qwen2 72B."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner_service.bench.case import GIVEN, Case
from planner_service.bench.ours import OURS, OURS_WHOLE, our_row, plan_seconds
from planner_service.bench.papers import AS_WRITTEN, paper_row
from planner_service.bench.peers import load_peers, peer_rows
from planner_service.bench.suites.suite import Suite

if TYPE_CHECKING:
    from planner_service.bench.case import Row
    from planner_service.bench.settings import Settings

CONFIGS = ("vlm-xl-8", "vlm-xl-16", "t2v-xl-4", "t2v-xl-8")
BASELINES_SECONDS = 8.0


def cases(settings: Settings) -> list[Case]:
    """Each large set-up with the first seed and mix; which of the paper's set-ups the settings name does not matter."""
    return [
        Case(
            config=config,
            mix=settings.mixes[0],
            seed=settings.seeds[0],
            microbatches=settings.microbatches,
            seconds=3 * plan_seconds(settings) + BASELINES_SECONDS,
        )
        for config in CONFIGS
    ]


def measure(case: Case, settings: Settings) -> list[Row]:
    """Plan a batch with ours, the paper's method and every baseline."""
    whole = case.request(split=False)
    ours, _, spent = our_row(case, case.request(), settings, method=OURS)
    ours_whole, _, _ = our_row(case, whole, settings, method=OURS_WHOLE)
    paper = paper_row(
        case, whole, method=AS_WRITTEN, memory=GIVEN, budget_ms=spent.on_one_core_ms or settings.budget_ms
    )
    return [ours, ours_whole, paper, *peer_rows(case, whole, load_peers(settings.baselines).baselines.values())]


LARGE = Suite(name="large", about="the large simulated set-ups against every baseline", cases=cases, measure=measure)
