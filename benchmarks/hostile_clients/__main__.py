"""What hostile clients cost a planner, and those whom it serves besides: ``python -m benchmarks.hostile_clients``.

For each attack a planner of its own, on this machine. Before, while the attack holds on, and after it, a client that
does nothing wrong submits a batch, takes its schedules and reports. Prints JSON: what the attack met with, how long the
good client took, and the planner's memory and processor time. Exit code 1 where the good client was not served, or the
planner's log tells of errors.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import secrets
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc.aio
from dip.connecting.token import bearer

from benchmarks import procfs
from benchmarks.fuzzing.good_job import GoodJob
from benchmarks.hostile_clients.attacks import ATTACKS, Target
from benchmarks.planner_process import CHANNEL_OPTIONS, PlannerProcess
from planner_service import settings as names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.hostile_clients.attacks import Attack

    Metadata = tuple[tuple[str, str], ...]

_SETTINGS = {names.MAX_BUDGET_MS: "5"}
"""It is the service that is attacked, not the search."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the result; 1 if others were harmed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hostile_clients", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--count", type=int, default=10_000, help="calls, streams or connections of each attack")
    parser.add_argument("--attacks", nargs="+", choices=sorted(ATTACKS), default=list(ATTACKS), help="which")
    parser.add_argument("--connections", type=int, default=1_000, help="at most, of attacks that open as many")
    options = parser.parse_args(arguments)
    told = {}
    for name in options.attacks:
        count = min(options.count, options.connections) if name == "silence" else options.count
        with guarded_planner() as (planner, hostile, good):
            told[name] = {"count": count} | asyncio.run(measure(planner, ATTACKS[name], count, hostile, good))
            told[name]["errors"] = planner.troubles()
    sys.stdout.write(json.dumps({"settings": vars(options), "attacks": told}, indent=2) + "\n")
    return 1 if any(one["harmed"] or one["errors"] for one in told.values()) else 0


@contextlib.contextmanager
def guarded_planner(settings: dict[str, str] | None = None) -> Iterator[tuple[PlannerProcess, Metadata, Metadata]]:
    """Start a planner that knows two tokens; yields also what calls of a hostile client carry, and of a good one."""
    tokens = {name: secrets.token_urlsafe(32) for name in ("hostile", "good")}
    entries = (
        f'[[tokens]]\nname = "{name}"\nsha256 = "{hashlib.sha256(token.encode()).hexdigest()}"\n'
        'roles = ["trainer"]\njobs = ["*"]\n'
        for name, token in tokens.items()
    )
    with tempfile.TemporaryDirectory(prefix="dip-hostile-") as directory:
        access = Path(directory, "access.toml")
        access.write_text("".join(entries), encoding="utf-8")
        with PlannerProcess(_SETTINGS | {names.ACCESS_FILE: str(access)} | (settings or {})) as planner:
            yield planner, bearer(tokens["hostile"]), bearer(tokens["good"])


async def measure(
    planner: PlannerProcess, attack: Attack, count: int, hostile: Metadata, good_one: Metadata
) -> dict[str, Any]:
    """Attack a planner that serves somebody else, too."""
    memory, seconds = {"before": planner.resident_mib()}, {}
    target = Target(address=planner.address, metadata=hostile)
    async with grpc.aio.insecure_channel(planner.address, options=CHANNEL_OPTIONS) as channel:
        await channel.channel_ready()
        good = GoodJob(channel, metadata=good_one)
        await good.register()
        try:
            seconds["before"] = await _served(good)
            used_s, began_s = procfs.cpu_s(planner.pid), time.monotonic()
            async with attack(target, count) as met:
                seconds["attack"] = round(time.monotonic() - began_s, 3)
                seconds["during"] = await _served(good)
                memory["during"] = planner.resident_mib()
            seconds["after"] = await _served(good)
        except (grpc.aio.AioRpcError, RuntimeError) as error:
            return {"harmed": f"{type(error).__name__}: {error}"}
    memory["after"] = planner.resident_mib()
    used_s = round(procfs.cpu_s(planner.pid) - used_s, 2)
    serving = planner.is_serving()
    return {
        "met": met,
        "seconds": seconds,
        "cpu_s": used_s,
        "resident_mib": memory,
        "harmed": "" if serving else "its health is gone",
    }


async def _served(good: GoodJob) -> float:
    """Have a batch planned; return how many seconds it took."""
    began_s = time.monotonic()
    await good.plan_next()
    return round(time.monotonic() - began_s, 3)


if __name__ == "__main__":
    sys.exit(main())
