"""A planner process as `dip serve` runs it, its settings from the environment, that notes when plans are stored.

``python -m benchmarks.load.server`` prints its address, serves until SIGTERM, and prints how late its event loop was
since the last SIGUSR1.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from benchmarks.load.store import NotedStore
from benchmarks.load.times import Times
from benchmarks.load.work import Work
from planner_service.server.lifecycle import PlannerServer
from planner_service.server.main import settle_garbage_collection
from planner_service.settings import load_settings
from planner_service.store import open_store
from planner_service.store.redis_store import RedisStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner_service.settings import Settings
    from planner_service.store import PlanStore

LAG_PERIOD_S = 0.02
_LAGS_KEPT = 100_000
_POLL_S = 0.05
_PATIENCE_S = 240.0


class LoopLag:
    """How much later than asked the event loop wakes a task."""

    def __init__(self) -> None:
        self._lags_us = np.zeros(_LAGS_KEPT, dtype=np.int64)
        self._count = 0

    async def watch(self) -> None:
        """Measure until cancelled; the latest measurements are kept."""
        clock = asyncio.get_running_loop().time
        while True:
            due_s = clock() + LAG_PERIOD_S
            await asyncio.sleep(LAG_PERIOD_S)
            self._lags_us[self._count % _LAGS_KEPT] = (clock() - due_s) * 1e6
            self._count += 1

    def forget(self) -> None:
        """Begin anew."""
        self._count = 0

    def summary_us(self) -> dict[str, int]:
        """Percentiles in microseconds."""
        lags = self._lags_us[: max(1, min(self._count, _LAGS_KEPT))]
        return {name: int(np.percentile(lags, share)) for name, share in (("p50", 50), ("p99", 99), ("max", 100))}


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Work.from_json, required=True)
    parser.add_argument("--times", type=Path, required=True)
    parser.add_argument("--iterations", type=int, required=True)
    parser.add_argument("--engine", required=True)
    parser.add_argument("--gate", action="store_true", help="store the plans of an iteration together")
    options = parser.parse_args(arguments)
    logging.basicConfig(level="WARNING")
    work = options.work
    times = Times(options.times, iterations=options.iterations, replicas=work.replicas, ranks=work.ranks)
    asyncio.run(_serve(options.engine, times, gate=options.gate))
    return 0


async def _serve(engine: str, times: Times, *, gate: bool) -> None:
    stop = asyncio.Event()
    lag = LoopLag()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGUSR1, lag.forget)
    loop.add_reader(sys.stdin, stop.set)  # it ends where the benchmark does
    settings = load_settings()
    store = NotedStore(_open_store(settings), times, gate=gate)
    server = PlannerServer(settings, engine=engine, store=cast("PlanStore", store))
    await server.start()
    settle_garbage_collection()
    while server.idle_workers < settings.search_workers:
        await asyncio.sleep(_POLL_S)
    _say(server.address)
    watching = asyncio.create_task(lag.watch())
    await stop.wait()
    watching.cancel()
    await server.drain()
    _say(json.dumps(lag.summary_us()))


def _open_store(settings: Settings) -> PlanStore:
    """Open the store; where a busy machine holds up its Redis, that is late, not away."""
    kept: dict[str, Any] = {
        "kept_iterations": settings.kept_iterations,
        "kept_bytes": settings.kept_bytes,
        "kept_closed_jobs": settings.kept_closed_jobs,
        "idle_job_s": settings.idle_job_s,
    }
    if settings.store.startswith("redis://"):
        return RedisStore(settings.store, timeout_s=_PATIENCE_S, **kept)
    return open_store(settings.store, **kept)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
