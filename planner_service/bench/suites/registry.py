"""The suites by name."""

from __future__ import annotations

from planner_service.bench.suites.engines import ENGINES
from planner_service.bench.suites.growth import GROWTH
from planner_service.bench.suites.large import LARGE
from planner_service.bench.suites.latency import LATENCY
from planner_service.bench.suites.memory import MEMORY_SUITE
from planner_service.bench.suites.paper import PAPER
from planner_service.bench.suites.progress import PROGRESS
from planner_service.bench.suites.quick import QUICK
from planner_service.bench.suites.sizes import SIZES
from planner_service.bench.suites.steps import STEPS_SUITE
from planner_service.bench.suites.waves import WAVES

SUITES = {
    suite.name: suite
    for suite in (
        PAPER,
        STEPS_SUITE,
        SIZES,
        MEMORY_SUITE,
        WAVES,
        PROGRESS,
        ENGINES,
        GROWTH,
        LARGE,
        LATENCY,
        QUICK,
    )
}

ALL = tuple(name for name in SUITES if name != QUICK.name)
"""What `all` means; the quick suite is a part of another."""
