"""How planning grows with worker processes: ``python -m benchmarks.scaling [--parts workers,planners,solver]``.

Prints JSON. Plans a second, from when every worker has stored one until the last is stored:

workers
    One planner with 1, 2, 4 and 8 workers whose solver sleeps for its budget, as if each had a core of its own.
planners
    As many planners of one worker each, which share a Redis of the benchmark's own.
solver
    The real solver on 1 and 2 workers; and, from what one worker does with each budget, how many cores of workers it
    takes to plan for every replica of a large job within each iteration, and what the event loop's process uses then.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.load.site import Connections, Planners, planner_site
from benchmarks.load.work import Work
from benchmarks.redis_server import RedisServer
from planner_service.pool.pool import DEFAULT_ENGINE
from planner_service.pool.starvation import starved_s
from planner_service.warmup import compile_kernels

if TYPE_CHECKING:
    from collections.abc import Sequence


PARTS = ("workers", "planners", "solver")
WARM_ITERATIONS = 1
"""Iterations that no figure counts; all workers are ready before them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Throughput:
    """What some workers did.

    Parameters
    ----------
    plans_per_s
        Plans stored a second, all workers at work.
    loop_cpu_s_a_plan
        Processor seconds of the planners' own processes for each plan, from its submission to the last rank's schedule.
    worker_waited_s_a_plan
        Seconds that workers waited for a core for each plan: where that is much, others kept the machine busy.
    """

    plans_per_s: float
    loop_cpu_s_a_plan: float
    worker_waited_s_a_plan: float = 0.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the result."""
    options = _parser().parse_args(arguments)
    result: dict[str, Any] = {"settings": vars(options), "cores": len(os.sched_getaffinity(0))}
    result["load_before"] = os.getloadavg()[0]
    for part in options.parts.split(","):
        result[part] = _MEASURES[part](options)
    sys.stdout.write(json.dumps(result, indent=2) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS), help="what to measure")
    parser.add_argument("--workers", default="1,2,4,8", help="numbers of workers that sleep")
    parser.add_argument("--sleep-ms", type=int, default=200, help="how long a sleeping solver takes")
    parser.add_argument("--config", default="vlm-s", help="set-up")
    parser.add_argument("--microbatches", type=int, default=16, help="of each batch")
    parser.add_argument("--replicas", type=int, default=8, help="replicas that submit")
    parser.add_argument("--ranks", type=int, default=4, help="pipeline ranks of each, all with a stream")
    parser.add_argument("--plans", type=int, default=24, help="plans measured for each worker")
    parser.add_argument("--solver-workers", default="1,2", help="numbers of workers that search")
    parser.add_argument("--budgets-ms", default="200,500,1000", help="search times of the real solver")
    parser.add_argument("--job-replicas", type=int, default=128, help="replicas of the job that is sized")
    parser.add_argument("--job-iteration-s", type=float, default=10.0, help="its iteration")
    return parser


def _workers(options: argparse.Namespace) -> dict[int, Any]:
    """One planner of so many workers that sleep."""
    measured = {
        count: _measure(options, _sleeping(options), Planners(workers=count)) for count in _numbers(options.workers)
    }
    return shares(measured, options.sleep_ms)


def _planners(options: argparse.Namespace) -> dict[int, Any]:
    """So many planners of one sleeping worker each."""
    measured = {}
    for count in _numbers(options.workers):
        with RedisServer() as redis:
            measured[count] = _measure(options, _sleeping(options), Planners(count=count, store=redis.url))
    return shares(measured, options.sleep_ms)


def _solver(options: argparse.Namespace) -> dict[str, Any]:
    """The real solver, and what a large job needs of it."""
    compile_kernels()
    budgets, counts = _numbers(options.budgets_ms), _numbers(options.solver_workers)
    asked = {(budgets[0], count) for count in counts} | {(budget, 1) for budget in budgets}
    measured = {(budget, count): _searching(options, budget, workers=count) for budget, count in sorted(asked)}
    needed_per_s = options.job_replicas / options.job_iteration_s
    return {
        "plans_per_s_by_workers": {count: round(measured[budgets[0], count].plans_per_s, 3) for count in counts},
        "budget_ms": budgets[0],
        "needed_plans_per_s": needed_per_s,
        "by_budget_ms": {budget: needs(measured[budget, 1], budget, needed_per_s) for budget in budgets},
    }


_MEASURES = {"workers": _workers, "planners": _planners, "solver": _solver}


def needs(one: Throughput, budget_ms: int, needed_per_s: float) -> dict[str, Any]:
    """What it takes to make so many plans a second, from what one worker with a core makes."""
    return {
        "plans_per_s_of_a_worker": round(one.plans_per_s, 3),
        "beside_the_budget_ms": round(1000 / one.plans_per_s - budget_ms, 1),
        "waited_for_a_core_ms": round(one.worker_waited_s_a_plan * 1000, 1),
        "worker_cores_needed": math.ceil(needed_per_s / one.plans_per_s),
        "event_loop_core_share": round(needed_per_s * one.loop_cpu_s_a_plan, 4),
    }


def shares(measured: dict[int, Throughput], sleep_ms: int) -> dict[int, Any]:
    """Throughput beside what as many times one worker's would be, and beside what sleeping alone would allow."""
    one = measured[min(measured)].plans_per_s / min(measured)
    return {
        count: {
            "plans_per_s": round(throughput.plans_per_s, 3),
            "share_of_linear": round(throughput.plans_per_s / (count * one), 4),
            "share_of_sleep": round(throughput.plans_per_s * sleep_ms / (count * 1000), 4),
            "waited_for_a_core_ms_a_plan": round(throughput.worker_waited_s_a_plan * 1000, 2),
            "loop_cpu_ms_a_plan": round(throughput.loop_cpu_s_a_plan * 1000, 2),
        }
        for count, throughput in measured.items()
    }


def _sleeping(options: argparse.Namespace) -> Work:
    return Work(
        config=options.config,
        microbatches=options.microbatches,
        replicas=options.replicas,
        ranks=options.ranks,
        budget_ms=options.sleep_ms,
    )


def _searching(options: argparse.Namespace, budget_ms: int, *, workers: int) -> Throughput:
    """Measure the real solver; no two batches are equal, as it would remember the plan."""
    iterations = WARM_ITERATIONS + _iterations(options, workers)
    work = replace(_sleeping(options), budget_ms=budget_ms, split_backward=True, batches=iterations * options.replicas)
    return _measure(options, work, Planners(workers=workers, engine=DEFAULT_ENGINE))


def _measure(options: argparse.Namespace, work: Work, planners: Planners) -> Throughput:
    workers = planners.count * planners.workers
    iterations = _iterations(options, workers)
    with ExitStack() as ended:
        directory = Path(ended.enter_context(tempfile.TemporaryDirectory(prefix="dip-scaling-")))
        site = ended.enter_context(
            planner_site(
                work,
                directory,
                iterations=WARM_ITERATIONS + iterations,
                planners=planners,
                connections=Connections(processes=1, streams_a_channel=work.ranks),
            )
        )
        site.crowd.run(0, WARM_ITERATIONS)
        pids = [pid for server in site.servers for pid in server.children()]
        cpu_s, waited_s = sum(server.cpu_s() for server in site.servers), sum(map(starved_s, pids))
        site.crowd.run(WARM_ITERATIONS, iterations)
        cpu_s = sum(server.cpu_s() for server in site.servers) - cpu_s
        waited_s = sum(map(starved_s, pids)) - waited_s
        stored = np.sort(site.times.stored[WARM_ITERATIONS:].ravel())
        seconds = float(stored[-1] - stored[workers - 1]) / 1e9
        return Throughput(
            plans_per_s=(stored.size - workers) / seconds,
            loop_cpu_s_a_plan=cpu_s / stored.size,
            worker_waited_s_a_plan=waited_s / stored.size,
        )


def _iterations(options: argparse.Namespace, workers: int) -> int:
    """Iterations that hold enough plans for so many workers."""
    iterations: int = max(1, math.ceil(options.plans * workers / options.replicas))
    return iterations


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
