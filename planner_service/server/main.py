"""`dip serve`: the planner as a process."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Final

from dip.misspelt import misspelt

from planner_service import logs, tracing
from planner_service.access import AccessError
from planner_service.loops import stop_where_a_loop_fails
from planner_service.pool.pool import DEFAULT_ENGINE
from planner_service.server.lifecycle import PlannerServer
from planner_service.server.listening import ListenError
from planner_service.server.open_files import raise_limit
from planner_service.store import StoreError

if TYPE_CHECKING:
    from planner_service.settings import Settings

_COLLECTION_THRESHOLDS: Final = (10_000, 50, 100)
"""Objects, young collections and middle ones before a collection; Python's defaults are 700, 10 and 10."""

_LONGEST_FAREWELL_S, _SHORTEST_FAREWELL_S = 2.0, 0.5
"""How long a planner that has drained waits for spans to be sent: within what is left of its time for draining."""

_log = logging.getLogger(__name__)


def serve(settings: Settings, *, engine: str = DEFAULT_ENGINE) -> int:
    """Serve until SIGTERM or SIGINT, then drain.

    Parameters
    ----------
    settings
        What to run with.
    engine
        Module that workers solve with; for tests of faults.

    Returns
    -------
    int
        The process's exit code: 0 after a clean drain, 1 where it could not start, which one line on stderr explains,
        or could not go on, which the log does.
    """
    logs.log_to_stderr(level=settings.log_level, format=settings.log_format)
    for slip in misspelt(os.environ):
        _log.warning("%s", slip)
    raise_limit()
    try:
        return asyncio.run(_serve(PlannerServer(settings, engine=engine), drain_s=settings.drain_ms / 1000))
    except (AccessError, ListenError, StoreError) as error:
        if settings.log_format == "json":
            _log.critical("%s", error)
        else:
            print(f"dip serve: {error}", file=sys.stderr)
        return 1


async def _serve(server: PlannerServer, *, drain_s: float) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    failed = asyncio.Event()

    def fail() -> None:
        failed.set()
        stop.set()

    stop_where_a_loop_fails(fail)
    tracing.start()
    await server.start()
    settle_garbage_collection()
    await stop.wait()
    draining_s = time.monotonic()
    await server.drain()
    left_s = draining_s + drain_s - time.monotonic()
    await tracing.stop(min(_LONGEST_FAREWELL_S, max(_SHORTEST_FAREWELL_S, left_s)))
    return int(failed.is_set())


def settle_garbage_collection() -> None:
    """Let collections pass over what stays for good, and come seldom: a full one stops every stream for its time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECTION_THRESHOLDS)
