"""What planning costs besides the search, and how soon there is a plan: about 1,000 and 2,500 stage tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner_service.bench.case import Case
from planner_service.bench.overhead import INSTANCES, THOUSAND, THOUSAND_LIMITED, decode_us, measure_instance
from planner_service.bench.suites.suite import Suite

if TYPE_CHECKING:
    from planner_service.bench.case import Row
    from planner_service.bench.settings import Settings

ROUNDS = 15
DECODE_US, DECODE_LIMITED_US, FIRST_PLAN_MS, OUTSIDE_SEARCH_MS, FIXED_SCHEDULE_MS = (
    "decode_us",
    "decode_limited_us",
    "first_plan_ms",
    "outside_search_ms",
    "fixed_schedule_ms",
)


def cases(settings: Settings) -> list[Case]:
    """The three instances."""
    sizes = {"thousand": THOUSAND, **INSTANCES}
    return [
        Case(
            config="vlm-s",
            mix="web",
            seed=settings.seeds[0],
            microbatches=instance.microbatches,
            variant=name,
            seconds=8.0,
        )
        for name, instance in sizes.items()
    ]


def measure(case: Case, _: Settings) -> list[Row]:
    """Measure one instance: CPU times of this process, medians."""
    if case.variant == "thousand":
        tasks, microseconds = decode_us(THOUSAND, seed=case.seed)
        limited = decode_us(THOUSAND_LIMITED, seed=case.seed)[1]
        return [
            case.row(what=DECODE_US, tasks=tasks, value=microseconds),
            case.row(what=DECODE_LIMITED_US, tasks=tasks, value=limited),
        ]
    measured = measure_instance(INSTANCES[case.variant], rounds=ROUNDS, seed=case.seed)
    names = (FIRST_PLAN_MS, OUTSIDE_SEARCH_MS, FIXED_SCHEDULE_MS)
    values = {name: measured[name] for name in names} | {f"{k}_ms": v for k, v in measured["steps_ms"].items()}
    return [case.row(what=name, tasks=measured["tasks"], value=value) for name, value in values.items()]


LATENCY = Suite(
    name="latency", about="what planning costs besides the search", cases=cases, measure=measure, alone=True
)
