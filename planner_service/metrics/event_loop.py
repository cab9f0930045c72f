"""How late the event loop runs what is due."""

from __future__ import annotations

import asyncio
from typing import Final

from planner_service.metrics import catalogue

PERIOD_S: Final = 0.1


async def watch_event_loop() -> None:
    """Measure until cancelled."""
    clock = asyncio.get_running_loop().time
    while True:
        due_s = clock() + PERIOD_S
        await asyncio.sleep(PERIOD_S)
        catalogue.LOOP_LAG.observe(max(0.0, clock() - due_s))
