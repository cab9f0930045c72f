"""What planning costs besides the search: ``python -m benchmarks.planning_overhead [--json out.json] ...``.

CPU time of every step from a request's bytes to its plan's bytes for about 2,500 stage tasks, in 64 microbatches and in
16 that are cut finer, on a partition that is kept; and the time until the planner hands out its first valid plan.
Prints one JSON object; milliseconds of this process, medians over all rounds.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from planner_service.bench.overhead import INSTANCES, measure_instance

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the result."""
    options = _parser().parse_args(arguments)
    measured = {
        name: measure_instance(INSTANCES[name], rounds=options.rounds, seed=options.seed) for name in options.instances
    }
    text = json.dumps({"settings": vars(options) | {"json": None}, "instances": measured}, indent=2)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            file.write(text + "\n")
    sys.stdout.write(text + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=_names, default=tuple(INSTANCES), help=f"of {', '.join(INSTANCES)}")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", help="a file to write as well")
    return parser


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


if __name__ == "__main__":
    sys.exit(main())
