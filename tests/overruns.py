"""Solvers that hang with a plan, ended as soon as the planner has it: a busy machine needs seconds to hand it out."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from planner_service.pool import process

if TYPE_CHECKING:
    import pytest

    from planner_service.server.lifecycle import PlannerServer


def extend_limits_until_a_plan_is_found(monkeypatch: pytest.MonkeyPatch, server: PlannerServer) -> None:
    """Have each solver of a planner, however slow, hand out its first plan before the clock ends it.

    Until then it counts as one that waits for a core all the time, which extends its limit.
    """

    def starved_s(_: int) -> float:
        return 0.0 if any(solve.best for solve in server._pool._unfinished) else time.monotonic()

    monkeypatch.setattr(process, "starved_s", starved_s)
    monkeypatch.setattr(process, "MOST_EXTENSION", 1000)
