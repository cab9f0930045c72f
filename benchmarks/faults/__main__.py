"""Trains through faults at random moments: ``python -m benchmarks.faults [--iterations 200] [--seed 0]``.

Two replicas of four ranks train a tiny model with plans of two planners that share a Redis. Planners are killed and
stopped, Redis is killed, emptied and full, the network slow or cut, clocks jump, solvers and all ranks are killed. The
ranks' loaders deliver a batch at a steady rate, as real ones do, which leaves the planners time; where a machine is too
slow for that, they get slower.

Prints JSON: for each kind of fault how long it lasted, the fallbacks that it cost and the seconds until planned
schedules were back; and the violations of what must hold all the time, of which there are none: every iteration runs
once in each attempt on every rank with one digest, every loss is that of ordinary training in one process, no accepted
batch is lost while Redis keeps its data, plans come back by themselves, no process writes of an error. Exit code 1 if
there is one.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from benchmarks.faults.campaign import SHORT, Campaign, run
from benchmarks.faults.strikes import STRIKES

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it, and print the result; 1 if something did not hold."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--iterations", type=int, default=200, help="run at least so many")
    parser.add_argument("--rounds", type=int, default=2, help="how often each kind strikes")
    parser.add_argument("--kinds", nargs="+", choices=list(STRIKES), default=list(STRIKES), help="faults that strike")
    parser.add_argument("--seed", type=int, default=0, help="of what strikes when, and for how long")
    parser.add_argument("--batch-ms", type=int, default=400, help="how often a loader has a batch")
    parser.add_argument("--budget-ms", type=int, default=40, help="search time of a plan")
    parser.add_argument("--haste", type=float, default=1.0, help="faults last so many times shorter")
    parser.add_argument("--relentless", action="store_true", help="let faults strike before plans are back")
    parser.add_argument("--logs", type=Path, help="a directory that gets the logs of all processes")
    parser.add_argument("--short", action="store_true", help="what the tests run, whatever else is said")
    options = vars(parser.parse_args(arguments))
    logs, short = options.pop("logs"), options.pop("short")
    logging.basicConfig(level="INFO", format="%(asctime)s %(message)s", stream=sys.stderr)
    torch.set_num_threads(1)
    campaign = SHORT if short else Campaign(**options | {"kinds": tuple(options["kinds"])})
    result = {"settings": asdict(campaign), **run(campaign, logs)}
    sys.stdout.write(json.dumps(result, indent=2) + "\n")
    return 1 if result["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
