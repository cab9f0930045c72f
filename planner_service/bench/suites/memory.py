"""Memory and time: VLM-M under Megatron, Optimus-like, and ours with no more memory than Optimus needs at its peak."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dip.errors import CannotFitError

from planner_service.baselines import BASELINES
from planner_service.bench.case import Case
from planner_service.bench.ours import OURS, our_row, plan_seconds
from planner_service.bench.peers import peer_rows
from planner_service.bench.suites.suite import Suite

if TYPE_CHECKING:
    from planner_service.bench.case import Row
    from planner_service.bench.settings import Settings

CONFIG, MEGATRON, OPTIMUS = "vlm-m", "megatron-interleaved", "optimus"
AT_OPTIMUS_PEAK = "as optimus"
"""Memory limits of a row: on each rank what Optimus holds there at most."""


def cases(settings: Settings) -> list[Case]:
    """Each batch of the set-up."""
    return [
        Case(
            config=CONFIG,
            mix=mix,
            seed=seed,
            microbatches=settings.microbatches,
            seconds=2 * plan_seconds(settings) + 1,
        )
        for seed in settings.seeds
        for mix in settings.mixes
    ]


def measure(case: Case, settings: Settings) -> list[Row]:
    """Plan a batch under its own limits, and ours under those of Optimus too."""
    request = case.request(split=False)
    rows = list(peer_rows(case, request, [BASELINES[MEGATRON], BASELINES[OPTIMUS]]))
    ours, _, _ = our_row(case, case.request(), settings, method=OURS)
    rows.append(ours)
    try:
        peaks = [schedule.peak_memory_bytes for schedule in BASELINES[OPTIMUS].plan(request).ranks]
    except CannotFitError:  # its row says so
        return rows
    limited = case.request()
    limited.job.cluster.memory_bytes[:] = peaks
    row, _, _ = our_row(case, limited, settings, method=OURS, memory=AT_OPTIMUS_PEAK)
    return [*rows, row]


MEMORY_SUITE = Suite(
    name="memory", about="ours and Optimus-like at equal peak memory, VLM-M", cases=cases, measure=measure
)
