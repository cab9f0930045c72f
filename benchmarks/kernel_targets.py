"""What the search loses with kernels for a level of CPUs: ``python -m benchmarks.kernel_targets [--rounds 15] ...``.

One process for each target, all on the same searches in turn, so that a busy machine slows all of them: CPU time of a
search of a fixed number of schedules, and of decoding one order of about 1,000 stage tasks. The target ``host`` is the
CPU here with everything that it can do. Compiling, about a minute for each target, is not measured; ``--cache`` keeps
machine code for another run. Prints one JSON object; ratios are medians of rounds, over the first target's.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any

from planner_service.kernel_cache import CACHE_DIR
from planner_service.kernel_target import CPU_FEATURES, CPU_NAME, host_levels

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

HOST = "host"
FIGURES = ("search_ms", "decode_us")
MEASURE = "measure"
"""What the parent says to a child, once a round."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the result."""
    options = _parser().parse_args(arguments)
    if options.child:
        return _serve(options)
    with tempfile.TemporaryDirectory() as scratch:
        measured = _measure(options, options.cache or scratch)
    result = {"settings": vars(options), "cpu": _host()[0], "targets": _summary(measured)}
    sys.stdout.write(json.dumps(result, indent=2) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--targets", nargs="+", default=[HOST, *host_levels()], help=f"{HOST}, or names as LLVM has them"
    )
    parser.add_argument("--config", default="vlm-s", help="set-up")
    parser.add_argument("--microbatches", type=int, default=16)
    parser.add_argument("--evaluations", type=int, default=5_000, help="schedules tried in each search")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--cache", help="folder that keeps machine code for another run")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    return parser


def _host() -> tuple[str, str]:
    """The CPU here, and what it can do, in LLVM's words."""
    from llvmlite import binding

    return binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()


def _measure(options: argparse.Namespace, cache: str) -> dict[str, list[dict[str, Any]]]:
    """All rounds of all targets."""
    children = {target: _start(target, options, cache) for target in options.targets}
    try:
        measured: dict[str, list[dict[str, Any]]] = {target: [] for target in children}
        for _ in range(options.rounds):
            for target, child in children.items():
                measured[target].append(_ask(child))
        return measured
    finally:
        for child in children.values():
            child.communicate()  # the end of its input ends it


def _start(target: str, options: argparse.Namespace, cache: str) -> subprocess.Popen[str]:
    """Start a process whose kernels are for a target, and wait until it has them."""
    cpu, features = _host() if target == HOST else (target, "")
    command = [sys.executable, "-m", "benchmarks.kernel_targets", "--child", "--config", options.config]
    command += ["--microbatches", str(options.microbatches), "--evaluations", str(options.evaluations)]
    environment = os.environ | {CPU_NAME: cpu, CPU_FEATURES: features, CACHE_DIR: cache}
    child = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    _ask(child)
    return child


def _ask(child: subprocess.Popen[str]) -> dict[str, Any]:
    """One round of a child."""
    if child.stdin is None or child.stdout is None:
        raise RuntimeError("the child was started without pipes")
    child.stdin.write(MEASURE + "\n")
    child.stdin.flush()
    answer = child.stdout.readline()
    if not answer:
        raise RuntimeError(f"a measuring process ended with code {child.wait()}; its message is above")
    measured: dict[str, Any] = json.loads(answer)
    return measured


def _serve(options: argparse.Namespace) -> int:
    """Measure once for each line of standard input."""
    from planner_service.bench.overhead import THOUSAND, decode_us
    from planner_service.check.workload import workload_request
    from planner_service.kernel_cache import TARGET
    from planner_service.planning import make_plan
    from planner_service.warmup import compile_kernels

    compile_kernels()
    request = workload_request(options.config, options.microbatches, 0, "web")
    request.job.options.split_backward = True
    request.job.options.max_evaluations = options.evaluations
    request.partition.CopyFrom(make_plan(request).partition)
    for _ in sys.stdin:
        began = time.process_time()
        plan = make_plan(request)
        search_ms = (time.process_time() - began) * 1e3
        _, decoding_us = decode_us(THOUSAND, seed=0)
        answer = {
            "target": TARGET.label,
            "digest": plan.digest.hex(),
            "search_ms": search_ms,
            "decode_us": decoding_us,
        }
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    return 0


def _summary(measured: dict[str, list[dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Medians of each target, and of its ratio to the first in the same round; whether it made the same plans."""
    first = next(iter(measured.values()))
    return {
        target: {
            "same_plans": len({each["digest"] for each in [*first, *rounds]}) == 1,
            **{what: round(_median(each[what] for each in rounds), 2) for what in FIGURES},
            "ratio": {what: round(_median(ratios(what, rounds, first)), 3) for what in FIGURES},
        }
        for target, rounds in measured.items()
    }


def ratios(what: str, rounds: list[dict[str, Any]], first: list[dict[str, Any]]) -> list[float]:
    """One measure of each round over that of another target in the same round."""
    return [float(each[what] / base[what]) for each, base in zip(rounds, first, strict=True)]


def _median(values: Iterable[float]) -> float:
    return statistics.median(values)


if __name__ == "__main__":
    sys.exit(main())
