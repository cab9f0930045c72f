"""A pool of real worker processes with a scripted engine, and what tests have it solve."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import scripted_engine
from dip.planner.v1 import planner_pb2 as pb
from serving import batch, spec, worker_pids

from planner_service.pool import Planned, PlanTask, Solve, SolverPool

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MEMORY_BYTES = 2**29
LIMIT_S = 0.5


@contextlib.asynccontextmanager
async def pool(engine: str = scripted_engine.__name__, *, workers: int = 1) -> AsyncIterator[SolverPool]:
    made = SolverPool(workers=workers, memory_bytes=MEMORY_BYTES, engine=engine)
    made.start()
    try:
        yield made
    finally:
        await made.close()
        while worker_pids():  # killed, and gone as soon as their idle priority gets a moment
            await asyncio.sleep(0.01)


def submit(
    made: SolverPool, script: int = 400, *, iteration: int = 0, lane: str = "job", limit_s: float = LIMIT_S
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
