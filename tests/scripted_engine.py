"""A solving module whose faults are scripted: what the language module's first instance is decides what happens.

Workers import it by name in place of the real engine. Its plans are complete and valid: the fixed schedule on an even
partition, marked as searched.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from typing import TYPE_CHECKING

from dip.errors import CannotFitError
from dip.fallback import fallback_plan as fixed_plan
from dip.partition import default_partition
from dip.planner.v1 import planner_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable

HANG = 10_001  # never answers
HANG_WITH_PLAN = 10_002  # hands out a plan, then never answers
DIE = 10_003  # is killed with nothing to show
DIE_WITH_PLAN = 10_004  # hands out a plan, then is killed
RAISE = 10_005  # has a bug
EAT_MEMORY = 10_006  # allocates until it may not
CANNOT_FIT = 10_007  # finds that the batch cannot fit
DIE_ALWAYS = 10_008  # is killed, and so is its fallback
WAIT_AT_GATE = 10_009  # waits until the test opens the FIFO that GATE names
RAISE_WITH_PLAN = 10_010
WAIT_AT_GATE_WITH_PLAN = 10_011

__all__ = ["default_partition", "fallback_plan", "make_partition", "make_plan", "warm_up"]

GATE = "DIP_TEST_GATE"
START_GATE = "DIP_TEST_START_GATE"
"""Names a FIFO that a worker reads to its end before it is ready."""
PARTITION_LOG = "DIP_TEST_PARTITION_LOG"
KEEPS_PACE = "DIP_TEST_KEEPS_PACE"
"""Set: what solves gives way to nobody, as far as this user may decide that; beside others who leave nothing over it
would take minutes for milliseconds of work."""

HANG_PARTITION = "hang"
"""A first module of this name makes the partition hang."""


def warm_up() -> None:
    """Wait where a test says so; nothing here is compiled."""
    if fifo := os.environ.get(START_GATE):
        with open(fifo) as gate:
            gate.read()


def make_partition(spec: pb.JobSpec, batch: pb.Batch | None, *, budget_ms: int = 5000) -> pb.Partition:
    """Even partition, one chunk a rank and module; writes a line for each call where a test asked for a log."""
    _keep_pace()
    if log := os.environ.get(PARTITION_LOG):
        with open(log, "a") as file:
            file.write(f"{os.getpid()}\n")
    if spec.model.modules[0].name == HANG_PARTITION:
        _hang()
    return even_partition(spec)


def even_partition(spec: pb.JobSpec) -> pb.Partition:
    """One chunk a rank for each module, as even as layers allow."""
    partition = pb.Partition()
    for module in spec.model.modules:
        layers, ranks = sum(run.count for run in module.layers), spec.cluster.ranks
        bounds = [layers * rank // ranks for rank in range(ranks + 1)]
        pieces = [(rank, bounds[rank], bounds[rank + 1]) for rank in range(ranks) if bounds[rank] < bounds[rank + 1]]
        for index, (rank, first, last) in enumerate(pieces):
            partition.chunks.add(module=module.name, index=index, rank=rank, first_layer=first, num_layers=last - first)
    return partition


def make_plan(
    request: pb.PlanRequest,
    *,
    budget_ms: int | None = None,
    cores: int = 1,
    on_plan: Callable[[pb.Plan], None] | None = None,
) -> pb.Plan:
    """Plan as scripted."""
    _keep_pace()
    script = _script(request.batch)
    plan = _searched(request)
    assert on_plan is not None
    match script:
        case 10_001:
            _hang()
        case 10_002:
            on_plan(plan)
            _hang()
        case 10_003 | 10_008:
            os.kill(os.getpid(), signal.SIGKILL)
        case 10_004:
            on_plan(plan)
            os.kill(os.getpid(), signal.SIGKILL)
        case 10_005:
            raise LookupError("a bug")
        case 10_006:
            hoard = []
            while True:
                hoard.append(bytearray(64 * 2**20))
        case 10_007:
            raise CannotFitError(rank=1, needed_bytes=20, available_bytes=10)
        case 10_009 | 10_011:
            if script == WAIT_AT_GATE_WITH_PLAN:
                on_plan(plan)
            with open(os.environ[GATE]) as gate:
                gate.read()
        case 10_010:
            on_plan(plan)
            raise LookupError("a bug after a plan")
    on_plan(plan)
    return plan


def fallback_plan(spec: pb.JobSpec, partition: pb.Partition, batch: pb.Batch) -> pb.Plan:
    """Fixed schedule."""
    _keep_pace()
    if _script(batch) == DIE_ALWAYS:
        os.kill(os.getpid(), signal.SIGKILL)
    return fixed_plan(spec, partition, batch)


def _searched(request: pb.PlanRequest) -> pb.Plan:
    partition = request.partition if request.partition.chunks else even_partition(request.job)
    plan = fixed_plan(request.job, partition, request.batch)
    plan.fallback = False
    plan.search.steps.add(elapsed_ms=1, engine="scripted", makespan_us=plan.makespan_us)
    return plan


def _script(batch: pb.Batch) -> int:
    for microbatch in batch.microbatches:
        for sample in microbatch.samples:
            units = sample.instances["language"].units
            return units[0] if units else 0
    return 0


def _keep_pace() -> None:
    if KEEPS_PACE in os.environ:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
            os.setpriority(os.PRIO_PROCESS, 0, 0)


def _hang() -> None:
    threading.Event().wait()
