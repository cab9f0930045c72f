"""How good plans are, and what they cost: ``python -m benchmarks.plan_quality [--json out.json] ...``.

For each of the paper's set-ups: makespan over the plan's own proven bound and over the ideal (every microbatch whole,
nothing recomputed, no rank ever idle), and the makespans of what users have without a planner, as ratios to ours on
the same batch, costs and memory: 1F1B on a latency-balanced partition, and the fixed fallback on our partition. Every
plan is checked. Prints one JSON object; medians over all batches of a set-up, null where one of them does not fit.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

from dip.errors import CannotFitError
from dip.fallback import fallback_plan

from planner_service.baselines.latency_balanced import latency_balanced_partition
from planner_service.baselines.one_f_one_b import one_f_one_b
from planner_service.check import check_plan
from planner_service.check.workload import workload_request
from planner_service.planning import make_plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dip.planner.v1 import planner_pb2 as pb

SET_UPS = ("vlm-s", "vlm-m", "vlm-l", "t2v-s", "t2v-l")
MIXES = ("web", "documents", "text", "waves")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the result."""
    options = _parser().parse_args(arguments)
    measured = [
        _measure(config, mix, seed, options)
        for config in options.configs
        for mix in options.mixes
        for seed in options.seeds
    ]
    result = {
        "settings": vars(options) | {"json": None},
        "peak_resident_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "medians": {config: _medians([m for m in measured if m["config"] == config]) for config in options.configs},
        "plans": measured,
    }
    text = json.dumps(result, indent=2)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            file.write(text + "\n")
    sys.stdout.write(text + "\n")
    return 1 if any(m["faults"] for m in measured) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configs", type=_names, default=SET_UPS, help="set-ups, by commas")
    parser.add_argument("--mixes", type=_names, default=("web", "documents"), help=f"of {', '.join(MIXES)}")
    parser.add_argument("--seeds", type=lambda text: tuple(int(s) for s in text.split(",")), default=(0,))
    parser.add_argument("--microbatches", type=int, default=16)
    parser.add_argument("--memory", type=float, default=1.0, help="share of the memory as given; 0: no limits")
    parser.add_argument("--split-backward", action="store_true", help="allow backwards in two halves")
    parser.add_argument("--budget-ms", type=int, default=2000)
    parser.add_argument("--json", help="a file to write as well")
    return parser


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _measure(config: str, mix: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    request = workload_request(config, options.microbatches, seed, mix)
    limits = [int(limit * options.memory) for limit in request.job.cluster.memory_bytes if options.memory]
    request.job.cluster.memory_bytes[:] = limits
    request.job.options.split_backward = options.split_backward
    began = time.perf_counter()
    plan = make_plan(request, budget_ms=options.budget_ms)
    seconds = time.perf_counter() - began
    checked = check_plan(request, plan)
    figures = checked.figures
    if figures is None:
        sys.exit(f"{config}, {mix}, seed {seed}: the plan cannot be followed: {'; '.join(map(str, checked.faults))}")
    return {
        "config": config,
        "mix": mix,
        "seed": seed,
        "faults": list(checked.faults),
        "over_bound": figures.gap,
        "over_ideal": figures.over_ideal,
        "one_f_one_b": _ratio(_one_f_one_b(request), plan),
        "fallback": _ratio(fallback_plan(request.job, plan.partition, request.batch), plan),
        "makespan_us": plan.makespan_us,
        "tasks": figures.tasks,
        "seconds": round(seconds, 2),
    }


def _one_f_one_b(request: pb.PlanRequest) -> pb.Plan | None:
    try:
        return one_f_one_b(request.job, request.batch, latency_balanced_partition(request.job, request.batch))
    except CannotFitError:
        return None


def _ratio(other: pb.Plan | None, plan: pb.Plan) -> float | None:
    """How many times longer another plan takes; None where it does not fit."""
    return round(other.makespan_us / plan.makespan_us, 3) if other and plan.makespan_us else None


def _medians(measured: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    names = ("over_bound", "over_ideal", "one_f_one_b", "fallback", "tasks", "seconds")
    columns = {name: [m[name] for m in measured] for name in names}
    return {name: None if None in column else round(statistics.median(column), 4) for name, column in columns.items()}


if __name__ == "__main__":
    sys.exit(main())
