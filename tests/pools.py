"""A pool of real worker processes with a scripted engine, and what tests have it solve."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING
from unittest.mock import patch

import scripted_engine
from dip.planner.v1 import planner_pb2 as pb
from serving import batch, spec, worker_pids

from planner_service.pool import Planned, PlanTask, Solve, SolverPool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MEMORY_BYTES = 2**29
SHORT_S, LONG_S = 0.5, 600.0
"""Limits of solves that overrun them, and of solves that end by themselves, however long they wait for a core."""


@contextlib.asynccontextmanager
async def pool(
    engine: str = scripted_engine.__name__, *, workers: int = 1, keeps_pace: bool = True
) -> AsyncIterator[SolverPool]:
    """Run a pool until the block ends; its scripted solves give way to nobody, unless the test is about that."""
    made = SolverPool(workers=workers, memory_bytes=MEMORY_BYTES, engine=engine)
    with patch.dict(os.environ, {scripted_engine.KEEPS_PACE: "yes"} if keeps_pace else {}):
        made.start()
        try:
            yield made
        finally:
            await made.close()
            while worker_pids():  # killed, and gone as soon as their idle priority gets a moment
                await asyncio.sleep(0.01)


def submit(
    made: SolverPool, script: int = 400, *, iteration: int = 0, lane: str = "job", limit_s: float = LONG_S
) -> Solve:
    request = pb.PlanRequest(job=spec(), batch=batch(script), partition=scripted_engine.even_partition(spec()))
    task = PlanTask(request=request.SerializeToString(), budget_ms=100, iteration=iteration)
    return made.submit(task, lane=lane, order=(iteration,), limit_s=limit_s)


def plan_of(result: object) -> pb.Plan:
    assert isinstance(result, Planned)
    return pb.GetPlanResponse.FromString(result.plan.answer).plan


async def warm(made: SolverPool) -> None:
    """Wait until a worker has answered, so that what follows measures no start."""
    assert isinstance(await submit(made).result(), Planned)
