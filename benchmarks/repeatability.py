"""Whether plans repeat and memory stays flat: ``python -m benchmarks.repeatability [--runs 20] [--plans 2000]``.

Prints JSON: how many different digests a request has when schedules tried decide when to stop, on one core and on two
in turn, and the resident memory of one process while it makes plans of changing batches.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING

from benchmarks.procfs import resident_mib
from planner_service.check.workload import workload_request
from planner_service.planning import make_plan
from planner_service.reuse import Reuse
from planner_service.warmup import compile_kernels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dip.planner.v1 import planner_pb2 as pb

MEASUREMENTS = 10
"""How often memory is read."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the result; 1 if digests differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="vlm-s", help="set-up")
    parser.add_argument("--runs", type=int, default=20, help="runs of one request")
    parser.add_argument("--plans", type=int, default=2000, help="plans of one process")
    parser.add_argument("--evaluations", type=int, default=300, help="schedules tried for each plan")
    options = parser.parse_args(arguments)
    compile_kernels()
    asked = _request(options.config, seed=0, evaluations=options.evaluations)
    digests = {make_plan(asked, cores=1 + run % 2).digest.hex() for run in range(options.runs)}
    result = {
        "settings": vars(options),
        "different_digests": len(digests),
        "resident_mib": _memory(options),
    }
    sys.stdout.write(json.dumps(result, indent=2) + "\n")
    return 0 if len(digests) == 1 else 1


def _request(config: str, *, seed: int, evaluations: int) -> pb.PlanRequest:
    request = workload_request(config, 4, seed, "web")
    request.job.options.split_backward = True
    request.job.options.max_evaluations = evaluations
    return request


def _memory(options: argparse.Namespace) -> dict[int, int]:
    """Resident MiB after some numbers of plans."""
    reuse, read = Reuse(), {}
    every = max(1, options.plans // MEASUREMENTS)
    for number in range(1, options.plans + 1):
        make_plan(_request(options.config, seed=number, evaluations=options.evaluations), reuse=reuse)
        if number % every == 0:
            read[number] = int(resident_mib(os.getpid()))
    return read


if __name__ == "__main__":
    sys.exit(main())
