"""Compiles the search's kernels into their cache: ``python -m planner_service.warmup``, part of the set-up."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import shutil
import sys
import time
from typing import TYPE_CHECKING

from dip.planner.v1 import planner_pb2 as pb

from planner_service.kernel_cache import CACHE, CACHE_DIR, are_compiled, is_temporary, make_folder, mark_compiled
from planner_service.planning import make_plan

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_log = logging.getLogger(__name__)

HOW_TO_KEEP = (
    "python -m planner_service.warmup, run by who may write the installation, compiles them for good; or name a folder "
    f"that stays, and can be written, in {CACHE_DIR}"
)

MAX_EVALUATIONS = 200
"""Schedules that each request tries: enough for every engine to get its turn."""


@contextlib.contextmanager
def _alone(cache: Path) -> Iterator[None]:
    """Hold the lock that only one process has at a time."""
    make_folder(cache)
    with (cache / "lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def compile_kernels(cache: Path = CACHE) -> None:
    """Compile all kernels that are not in the cache; waits where another process is at it.

    Machine code of other versions of the source is removed. Where nothing can be kept, kernels are compiled for this
    process alone, with a warning; a folder that is complete is only read.
    """
    if are_compiled(cache):
        return
    if is_temporary(cache):
        _log.warning("kernels are kept in %s, as no better folder can be written: %s", cache, HOW_TO_KEEP)
    try:
        with _alone(cache):
            if not are_compiled(cache):
                load_kernels()
                mark_compiled(cache)
                _remove_others(cache)
    except OSError as error:
        _log.warning("kernels are compiled for this process alone, as nothing can be kept: %s; %s", error, HOW_TO_KEEP)
        load_kernels()


def _remove_others(cache: Path) -> None:
    """Remove code of other sources; what is for other CPUs or another Python stays."""
    source = "-".join(cache.name.split("-")[:2])
    for other in cache.parent.glob("kernels-*"):
        if not other.name.startswith(f"{source}-"):
            shutil.rmtree(other, ignore_errors=True)


def load_kernels() -> None:
    """Run every kernel once: what is compiled is loaded, what is not is compiled."""
    for request in small_requests():
        make_plan(request)


def small_requests() -> list[pb.PlanRequest]:
    """Requests that run every kernel: backwards whole and split; memory without limit, which leaves time to polish."""
    whole, split, unlimited = _small_request(), _small_request(), _small_request()
    split.job.options.split_backward = True
    unlimited.job.cluster.memory_bytes.clear()
    return [whole, split, unlimited]


def _small_request() -> pb.PlanRequest:
    """Two modules, two ranks, limited memory, and no schedule that meets the bound."""
    point = pb.CostPoint(units=1, forward_us=10, backward_input_us=10, backward_weight_us=10, activation_bytes=10)
    lean = pb.CostPoint(units=1, forward_us=10, backward_input_us=20, backward_weight_us=10, activation_bytes=1)
    cost = pb.LayerCost(points=[point], strategies=[pb.MemoryStrategy(name="recompute", points=[lean])])
    modules = [
        pb.Module(name=name, inputs=inputs, layers=[pb.LayerRun(count=4, cost=cost)], output_bytes_per_unit=5)
        for name, inputs in (("encoder", []), ("decoder", ["encoder"]))
    ]
    return pb.PlanRequest(
        job=pb.JobSpec(
            model=pb.Model(modules=modules),
            cluster=pb.Cluster(ranks=2, memory_bytes=[500], link_latency_us=3, link_bytes_per_us=1),
            options=pb.PlannerOptions(max_evaluations=MAX_EVALUATIONS),
        ),
        # Too many tasks for CP-SAT to be given the whole, which would take seconds and compile nothing.
        batch=pb.Batch(microbatches=[_microbatch(1 + j % 5, 1 + j % 7) for j in range(40)]),
    )


def _microbatch(encoder_units: int, decoder_units: int) -> pb.Microbatch:
    sizes = ((encoder_units, 3), (2, decoder_units))
    return pb.Microbatch(
        samples=[
            pb.Sample(instances={"encoder": pb.Instances(units=[encoder]), "decoder": pb.Instances(units=[decoder])})
            for encoder, decoder in sizes
        ]
    )


def main() -> int:
    """Compile, and say how long it took."""
    started = time.monotonic()
    compile_kernels()
    if not are_compiled():
        return 1
    sys.stdout.write(f"search kernels ready after {time.monotonic() - started:.1f} s, in {CACHE}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
