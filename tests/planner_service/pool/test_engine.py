"""Shows that warming up leaves the first solve nothing to compile."""

from __future__ import annotations

import sys

import corners
from numba.core.registry import CPUDispatcher

from planner_service.pool import engine


def compiled() -> dict[str, int]:
    """How many signatures of each of the planner's functions are compiled by now."""
    modules = [module for name, module in sys.modules.items() if name.startswith("planner_service.")]
    return {
        f"{module.__name__}.{name}": len(value.signatures)
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, CPUDispatcher)
    }


def test_solves_compile_nothing_that_warming_up_did_not() -> None:
    engine.warm_up()
    before = compiled()
    assert sum(before.values()) > 0
    for make in (corners.seven_microbatches_on_four_ranks, corners.memory_that_differs_by_rank, corners.frozen_encoder):
        engine.make_plan(make(), budget_ms=100)
    assert compiled() == before
