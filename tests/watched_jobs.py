"""A planner whose jobs have done something, for tests of the commands that show it."""

from __future__ import annotations

import asyncio
import contextlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import scripted_engine
from dip.planner.v1 import planner_pb2 as pb
from serving import LONG_MS, client, planner, register, stream, submit, take

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from dip.planner.v1 import planner_pb2_grpc as pb_grpc

    from planner_service.server.lifecycle import PlannerServer

DOCS = Path(__file__).parents[1] / "docs" / "watching.md"
LATE = "no plan within 200 ms: [bold]late[/bold]"


def report(
    iteration: int, rank: int, *, replica: int = 0, took_us: int = 0, reason: str | None = None, **fields: Any
) -> pb.ReportExecutionRequest:
    """A rank's report; with a reason, even an empty one, of the fallback."""
    made = pb.ReportExecutionRequest(
        job_id="job", attempt=1, replica=replica, rank=rank, iteration=iteration, plan_digest=bytes(32), **fields
    )
    if took_us:
        made.actions.add(kind=pb.ACTION_KIND_FORWARD, module="language", end_us=took_us)
    if reason is not None:
        made.fallback, made.fallback_reason = True, reason
    return made


async def train(stub: pb_grpc.PlannerServiceAsyncStub) -> None:
    """Have two replicas of two ranks go through every kind of iteration.

    0: all ranks run the plan. 1: replica 1 falls back. 2: there is no plan for replica 0. 3: planned. 4: waits.
    """
    await stub.RegisterJob(register(replicas=2, budget_ms=LONG_MS))  # as long hangs iteration 4
    for iteration, script in enumerate((400, 400, scripted_engine.CANNOT_FIT, 400)):
        for replica in (0, 1):
            await stub.SubmitBatch(submit(iteration, script if replica == 0 else 400, replica=replica))
    for replica in (0, 1):
        call = stub.StreamSchedules(stream(replica=replica))
        await take(call, 4)
        call.cancel()
    for replica in (0, 1):
        for rank in (0, 1):
            await stub.ReportExecution(report(0, rank, replica=replica, took_us=1_000_000 + rank, stalled_us=rank))
            late = {"reason": LATE, "stalled_us": 200_000} if replica == 1 else {"took_us": 900_000}
            await stub.ReportExecution(report(1, rank, replica=replica, **late))
    await stub.SubmitBatch(submit(4, scripted_engine.HANG))


@contextlib.asynccontextmanager
async def trained(**how: Any) -> AsyncIterator[PlannerServer]:
    """Serve such a job."""
    async with planner(**how) as server, client(server) as stub:
        await train(stub)
        yield server


async def in_thread(function: Callable[..., Any], *arguments: object) -> Any:
    """Call what blocks, while this event loop serves."""
    return await asyncio.to_thread(function, *arguments)


def documented(name: str) -> set[str]:
    """Return the fields that the documentation's table of a JSON object lists."""
    (table,) = re.findall(rf"^### `{name}`\n\n(?:[^|#].*\n\n)?((?:\|.*\n)+)", DOCS.read_text(), flags=re.MULTILINE)
    cells = [row.split("|")[1] for row in table.splitlines()[2:]]
    return {field for cell in cells for field in re.findall(r"`(\w+)`", cell)}
