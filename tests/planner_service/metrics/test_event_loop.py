"""Shows that a held-up event loop is seen in its lag."""

from __future__ import annotations

import asyncio
import time

from metric_samples import value
from serving import run

from planner_service.metrics import watch_event_loop
from planner_service.metrics.event_loop import PERIOD_S


def test_what_holds_the_loop_up_is_measured() -> None:
    async def scenario() -> None:
        before = value("dip_event_loop_lag_seconds_sum")
        watching = asyncio.create_task(watch_event_loop())
        await asyncio.sleep(0)
        time.sleep(PERIOD_S + 0.3)  # what a handler must never do
        count = value("dip_event_loop_lag_seconds_count")
        while value("dip_event_loop_lag_seconds_count") == count:
            await asyncio.sleep(0.001)
        assert value("dip_event_loop_lag_seconds_sum") - before >= 0.25
        watching.cancel()

    run(scenario())
