"""A solver process: `python -m planner_service.pool.worker`, started by the pool alone.

It takes one task at a time from its socket and answers on it. What it cannot foresee (a solver's crash, memory
that runs out, a bug) ends it: the pool replaces it and has every plan that it sent before.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import faulthandler
import importlib
import os
import resource
import signal
import socket
from typing import TYPE_CHECKING, Protocol, cast

from dip.errors import CannotFitError, InvalidRequestError
from dip.planner.v1 import planner_pb2 as pb

from planner_service.pool.messages import (
    Finished,
    Found,
    PartitionTask,
    PlanTask,
    Ready,
    SplitPlan,
    Taken,
    receive_task,
    send,
)
from planner_service.pool.split import split_plan

if TYPE_CHECKING:
    from collections.abc import Callable

_PR_SET_PDEATHSIG = 1


class Engine(Protocol):
    """The names that a solving module has; see `planner_service.pool.engine`."""

    def warm_up(self) -> None:
        """Do once what the first solve would otherwise spend its time on."""

    def make_partition(self, spec: pb.JobSpec, batch: pb.Batch | None, *, budget_ms: int) -> pb.Partition:
        """Decide where every layer lives."""

    def make_plan(
        self, request: pb.PlanRequest, *, budget_ms: int | None, cores: int, on_plan: Callable[[pb.Plan], None]
    ) -> pb.Plan:
        """Search a plan, handing out each complete one on the way."""

    def default_partition(self, spec: pb.JobSpec, batch: pb.Batch | None) -> pb.Partition:
        """Make a partition without searching."""

    def fallback_plan(self, spec: pb.JobSpec, partition: pb.Partition, batch: pb.Batch) -> pb.Plan:
        """Make the fixed schedule."""


Answer = SplitPlan | bytes | InvalidRequestError | CannotFitError | None


def main() -> None:
    """Serve tasks until the pool closes the socket or dies."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--socket", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--memory-bytes", type=int, required=True)
    parser.add_argument("--engine", required=True)
    parser.add_argument("--hurry", action="store_true")
    arguments = parser.parse_args()
    faulthandler.enable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the pool decides.
    _die_with(arguments.parent)
    if not arguments.hurry:
        _give_way()
    _limit_memory(arguments.memory_bytes)
    engine = cast("Engine", importlib.import_module(arguments.engine))
    engine.warm_up()
    _give_way()
    # Closed by the end of the process alone: on an error, the pool must not see it close, and kill this process, before
    # Python has written what went wrong.
    connection = socket.socket(fileno=arguments.socket)
    send(connection, Ready())
    while (task := receive_task(connection)) is not None:
        send(connection, Taken())
        send(connection, Finished(result=_answer(engine, task, connection)))


def _answer(engine: Engine, task: PlanTask | PartitionTask, connection: socket.socket) -> Answer:
    try:
        if isinstance(task, PartitionTask):
            return _partition(engine, task)
        return _plan(engine, task, connection)
    except (InvalidRequestError, CannotFitError) as error:
        return error


def _partition(engine: Engine, task: PartitionTask) -> bytes:
    request = pb.RegisterJobRequest.FromString(task.request)
    batch = request.representative_batch if request.HasField("representative_batch") else None
    if task.fallback:
        partition = engine.default_partition(request.spec, batch)
    else:
        partition = engine.make_partition(request.spec, batch, budget_ms=task.budget_ms)
    return partition.SerializeToString(deterministic=True)


def _plan(engine: Engine, task: PlanTask, connection: socket.socket) -> SplitPlan | None:
    request = pb.PlanRequest.FromString(task.request)
    if task.fallback:
        return split_plan(request, _fallback(engine, request), task.iteration)
    sent: pb.Plan | None = None

    def keep(plan: pb.Plan) -> None:
        nonlocal sent
        send(connection, Found(plan=split_plan(request, plan, task.iteration)))
        sent = plan

    plan = engine.make_plan(request, budget_ms=task.budget_ms, cores=task.cores, on_plan=keep)
    return None if plan is sent else split_plan(request, plan, task.iteration)


def _fallback(engine: Engine, request: pb.PlanRequest) -> pb.Plan:
    partition = request.partition
    if not partition.chunks:
        partition = engine.default_partition(request.job, request.batch)
    plan = engine.fallback_plan(request.job, partition, request.batch)
    plan.fallback = True
    return plan


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when the pool's dies, in mid-solve too."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit("the planner that started this worker is gone")


def _give_way() -> None:
    """Run only on what training leaves over, where the system allows it: all threads, of which each has a priority."""
    for thread in map(int, os.listdir("/proc/self/task")):
        with contextlib.suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, thread, 19)
        with contextlib.suppress(OSError):
            os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))


def _limit_memory(limit_bytes: int) -> None:
    """Bound what the process may write to; address space that a compiler only reserves does not count."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    soft = limit_bytes if hard == resource.RLIM_INFINITY else min(limit_bytes, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


if __name__ == "__main__":
    main()
