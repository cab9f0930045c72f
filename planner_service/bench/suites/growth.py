"""Growth: time and gap as microbatches and ranks grow, VLM-S."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner_service.bench.case import Case
from planner_service.bench.ours import OURS, our_row, plan_seconds
from planner_service.bench.suites.suite import Suite

if TYPE_CHECKING:
    from planner_service.bench.case import Row
    from planner_service.bench.settings import Settings

CONFIG = "vlm-s"
MICROBATCHES = (4, 8, 16, 32, 64, 128, 256)
RANKS = (2, 4, 8, 16, 32)
RANKS_GIVEN = 4
SECONDS_PER_MICROBATCH = 0.08
"""Building and judging of large plans."""


def cases(settings: Settings) -> list[Case]:
    """Numbers of microbatches on the set-up's ranks, then numbers of ranks."""
    sizes = [(many, RANKS_GIVEN) for many in MICROBATCHES]
    sizes += [(settings.microbatches, ranks) for ranks in RANKS if ranks != RANKS_GIVEN]
    return [
        Case(
            config=CONFIG,
            mix=settings.mixes[0],
            seed=settings.seeds[0],
            microbatches=many,
            variant=f"{ranks} ranks",
            seconds=plan_seconds(settings) + SECONDS_PER_MICROBATCH * many,
        )
        for many, ranks in dict.fromkeys(sizes)
    ]


def measure(case: Case, settings: Settings) -> list[Row]:
    """Plan a batch of one size."""
    ranks = int(case.variant.split()[0])
    request = case.request()
    request.job.cluster.ranks = ranks
    row, _, _ = our_row(case, request, settings, method=OURS)
    return [{**row, "ranks": ranks}]


GROWTH = Suite(name="growth", about="4 to 256 microbatches and 2 to 32 ranks, VLM-S", cases=cases, measure=measure)
