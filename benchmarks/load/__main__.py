"""Load on one planner: ``python -m benchmarks.load [--parts even,burst,memory] [--store memory://|redis]``.

Prints JSON. 128 replicas of 8 ranks by default, each rank with a stream, held by a few processes on this machine; plans
are real ones of a set-up, made by solvers that take no time (`benchmarks.sleeping_engine`).

even
    Batches come evenly over the iteration: milliseconds from plan stored to schedule received.
burst
    All replicas' plans are stored at once: milliseconds until the last of all schedules is received, and how many times
    those are of a gRPC server that only writes the same bytes to as many streams, measured in turn with it.
memory
    Short iterations, until the planner has sent very many schedules: its resident memory on the way.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.load.processes import MemorySampler
from benchmarks.load.site import Connections, Planners, bare_site, planner_site
from benchmarks.load.work import Work
from benchmarks.redis_server import RedisServer
from planner_service.pool.starvation import starved_s

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from benchmarks.load.site import Site

PARTS = ("even", "burst", "memory")
WARM_ITERATIONS = 2
"""Iterations that no figure counts: workers start, and plan each batch once."""
MEMORY_POINTS = 10


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the result."""
    options = _parser().parse_args(arguments)
    work = Work(
        config=options.config, microbatches=options.microbatches, replicas=options.replicas, ranks=options.ranks
    )
    connections = Connections(processes=options.clients, streams_a_channel=options.streams_a_channel)
    result: dict[str, Any] = {"settings": vars(options), "sizes": _sizes(work), "load_before": os.getloadavg()[0]}
    for part in options.parts.split(","):
        with ExitStack() as ended:
            place = Path(ended.enter_context(tempfile.TemporaryDirectory(prefix="dip-load-")))
            # One for each part: what another had planned would be there at once.
            store = ended.enter_context(RedisServer()).url if options.store == "redis" else options.store
            planners = Planners(workers=options.workers, store=store, kept_iterations=options.kept_iterations)
            result[part] = _MEASURES[part](work, place, planners, connections, options)
    sys.stdout.write(json.dumps(result, indent=2) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--parts", default=",".join(PARTS), help="what to measure")
    parser.add_argument("--store", default="memory://", help="DIP_STORE; redis: a server of the benchmark's own")
    parser.add_argument("--config", default="vlm-s", help="set-up whose plans are sent")
    parser.add_argument("--microbatches", type=int, default=16, help="of each batch: the plans' size")
    parser.add_argument("--replicas", type=int, default=128)
    parser.add_argument("--ranks", type=int, default=8, help="pipeline ranks of a replica, each with a stream")
    parser.add_argument("--workers", type=int, default=1, help="solver processes of the planner")
    parser.add_argument("--kept-iterations", type=int, default=32, help="DIP_KEPT_ITERATIONS")
    parser.add_argument("--clients", type=int, default=2, help="processes that hold the streams")
    parser.add_argument("--streams-a-channel", type=int, default=8, help="streams of one connection")
    parser.add_argument("--iterations", type=int, default=6, help="even: iterations")
    parser.add_argument("--iteration-s", type=float, default=10.0, help="even: how long each is")
    parser.add_argument("--rounds", type=int, default=15, help="burst: rounds of each server")
    parser.add_argument("--schedules", type=int, default=100_000, help="memory: schedules sent")
    parser.add_argument("--short-iteration-s", type=float, default=1.25, help="memory: how long an iteration is")
    return parser


def _even(
    work: Work, directory: Path, planners: Planners, connections: Connections, options: argparse.Namespace
) -> dict[str, Any]:
    iterations = WARM_ITERATIONS + options.iterations
    with planner_site(work, directory, iterations=iterations, planners=planners, connections=connections) as site:
        (planner,) = site.servers
        site.crowd.run(0, WARM_ITERATIONS, period_us=int(options.iteration_s * 1e6 / 4))
        planner.send(signal.SIGUSR1)
        cpu_s, waited_s = planner.cpu_s(), starved_s(planner.pid)
        received = site.crowd.run(WARM_ITERATIONS, options.iterations, period_us=int(options.iteration_s * 1e6))
        cpu_s, waited_s = planner.cpu_s() - cpu_s, starved_s(planner.pid) - waited_s
        schedules = options.iterations * work.replicas * work.ranks
        return {
            "streams": work.replicas * work.ranks,
            "schedules_received_and_checked": received,
            "stored_to_received_ms": _percentiles(site.times.latencies_ms(WARM_ITERATIONS)),
            "planner_cpu_us_a_schedule": round(cpu_s * 1e6 / schedules, 1),
            "planner_cpu_share": round(cpu_s / (options.iterations * options.iteration_s), 4),
            "planner_waited_for_a_core_us_a_schedule": round(waited_s * 1e6 / schedules, 1),
            "planner_resident_mib": round(planner.resident_mib(), 1),
            "event_loop_lag_us": json.loads(planner.terminate()),
        }


def _memory(
    work: Work, directory: Path, planners: Planners, connections: Connections, options: argparse.Namespace
) -> dict[str, Any]:
    streams = work.replicas * work.ranks
    iterations = -(-options.schedules // streams)
    with planner_site(work, directory, iterations=iterations, planners=planners, connections=connections) as site:
        (planner,) = site.servers
        planner.send(signal.SIGUSR1)
        at_start = planner.resident_mib()
        began_s = time.monotonic()
        with MemorySampler(planner, every_s=options.short_iteration_s) as sampler:
            received = site.crowd.run(0, iterations, period_us=int(options.short_iteration_s * 1e6))
        read = np.array(sampler.mib)
        return {
            "took_s": round(time.monotonic() - began_s, 1),
            "schedules_received_and_checked": received,
            "resident_mib_with_all_streams_open": round(at_start, 1),
            "resident_mib": [round(float(mib), 1) for mib in read[:: max(1, len(read) // MEMORY_POINTS)]],
            "most_resident_mib": round(float(read.max()), 1),
            "growth_mib_over_second_half": round(_growth(read[len(read) // 2 :]), 2),
            "stored_to_received_ms": _percentiles(site.times.latencies_ms(WARM_ITERATIONS)),
            "event_loop_lag_us": json.loads(planner.terminate()),
        }


def _burst(
    work: Work, directory: Path, planners: Planners, connections: Connections, options: argparse.Namespace
) -> dict[str, Any]:
    iterations = WARM_ITERATIONS + options.rounds
    gated = replace(planners, gate=True)
    with (
        planner_site(work, directory, iterations=iterations, planners=gated, connections=connections) as ours,
        bare_site(work, directory, iterations=iterations, connections=connections) as bare,
    ):
        for iteration in range(iterations):
            ours.crowd.run(iteration, 1)
            bare.crowd.run(iteration, 1)
        last = {name: _until_last_ms(site) for name, site in (("planner", ours), ("bare", bare))}
    ratios = [mine / other for mine, other in zip(last["planner"], last["bare"], strict=True)]
    return {
        "schedules_a_round": work.replicas * work.ranks,
        "until_last_received_ms": {name: [round(value, 1) for value in values] for name, values in last.items()},
        "median_ms": {name: round(statistics.median(values), 1) for name, values in last.items()},
        "median_ratio": round(statistics.median(ratios), 3),
        "ratio_of_medians": round(statistics.median(last["planner"]) / statistics.median(last["bare"]), 3),
    }


_MEASURES = {"even": _even, "burst": _burst, "memory": _memory}


def _until_last_ms(site: Site) -> list[float]:
    """From the first plan stored to the last schedule received, of every measured iteration."""
    site.times.latencies_ms(WARM_ITERATIONS)  # all are there
    stored, received = site.times.stored[WARM_ITERATIONS:], site.times.received[WARM_ITERATIONS:]
    return [float(until_ns) / 1e6 for until_ns in received.max(axis=(1, 2)) - stored.min(axis=1)]


def _percentiles(values: NDArray[np.float64]) -> dict[str, float]:
    shares = {"p50": 50, "p90": 90, "p99": 99, "p99.9": 99.9, "max": 100}
    return {name: round(float(np.percentile(values, share)), 3) for name, share in shares.items()}


def _growth(values: NDArray[np.float64]) -> float:
    """How much a line through values rises from the first to the last."""
    if len(values) < 2:
        return 0.0
    return float(np.polynomial.Polynomial.fit(range(len(values)), values, 1).convert().coef[-1] * (len(values) - 1))


def _sizes(work: Work) -> dict[str, Any]:
    plans = [work.fixed_responses(number) for number in range(work.batches)]
    schedules = [len(response) for plan in plans for response in plan]
    return {
        **asdict(work),
        "streams": work.replicas * work.ranks,
        "schedule_bytes": round(statistics.mean(schedules)),
        "plan_bytes_sent": round(sum(schedules) / len(plans)),
    }


if __name__ == "__main__":
    sys.exit(main())
