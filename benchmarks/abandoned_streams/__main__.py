"""What streams cost that clients leave, and whether idle ones live: ``python -m benchmarks.abandoned_streams``.

Against a planner with a job that has nothing to stream:

- ``--streams 1500`` are opened and cancelled, in waves;
- as many belong to processes that are killed, a wave each;
- one wave falls silent, as on a node that lost its network: found out by pings, within 80 s;
- one stream, with the options of an agent's channel, is idle for ``--idle-s 600``; then its schedule must come.

Prints JSON: the planner's memory after each 300 streams, and how many seconds it went on to count streams that were
left. It lets no more be open than two waves, so that leaked ones would refuse the next. Exit code 1 where streams were
refused for minutes, still counted at the end, or ended while they were idle.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

from benchmarks.abandoned_streams.site import PATIENCE_S, StreamSite
from benchmarks.planner_process import PlannerProcess
from planner_service import settings as names
from trainer_agent.connections import CHANNEL_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence


_GRACE_MS = "240000"
"""It is a schedule that must come, however busy the machine is."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the result; 1 if a stream leaked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.abandoned_streams", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--streams", type=int, default=1_500, help="opened in each way")
    parser.add_argument("--wave", type=int, default=50, help="open at a time")
    parser.add_argument("--every", type=int, default=300, help="streams between two readings of memory")
    parser.add_argument("--silent", type=int, default=50, help="that fall silent; 0: do without")
    parser.add_argument("--idle-s", type=float, default=0.0, help="how long one stream is idle; 0: do without")
    parser.add_argument("--ping-ms", type=int, default=0, help="how often the idle one pings, in place of agents' way")
    parser.add_argument("--least-pings", type=int, default=0, help="it stays idle until so many were sent")
    parser.add_argument("--store", default="memory://", help="DIP_STORE of the planner")
    options = parser.parse_args(arguments)
    settings = {names.MAX_STREAMS: str(2 * options.wave), names.STORE: options.store, names.SOLVE_GRACE_MS: _GRACE_MS}
    with PlannerProcess(settings) as planner:
        measured = asyncio.run(measure(planner, options))
        errors = planner.troubles()
    sys.stdout.write(json.dumps({"settings": vars(options)} | measured | {"errors": errors}, indent=2) + "\n")
    return 1 if measured["refused"] or measured["still_counted"] or errors else 0


async def measure(planner: PlannerProcess, options: argparse.Namespace) -> dict[str, Any]:
    """Leave streams in every way, and see what the planner makes of it."""
    site = StreamSite(planner.address, most=2 * options.wave)
    await site.register()
    await site.cancel_wave(options.wave)  # what the first wave sets up stays
    measured: dict[str, Any] = {}
    for way, wave in (("cancelled", site.cancel_wave), ("killed", site.kill_wave)):
        memory = await _in_waves(planner, options, wave)
        measured[way] = {"resident_mib": memory, "counted_for_s": round(await site.until_none_counted(), 2)}
    if options.silent:
        measured["silent"] = {"counted_for_s": round(await site.lose_wave(options.silent), 1)}
    if options.idle_s:
        how = _agents_options(options.ping_ms)
        measured["idle"] = await site.idle(options.idle_s, how, least_pings=options.least_pings)
    return measured | {"refused": site.refused, "still_counted": await site.still_counted()}


async def _in_waves(
    planner: PlannerProcess, options: argparse.Namespace, wave: Callable[[int], Awaitable[None]]
) -> dict[int, int]:
    """Open and leave all streams; return the planner's memory by how many were left by then."""
    memory, left = {0: planner.resident_mib()}, 0
    while left < options.streams:
        count = min(options.wave, options.streams - left, options.every - left % options.every)
        await wave(count)
        left += count
        if left % options.every == 0 or left == options.streams:
            memory[left] = planner.resident_mib()
    return memory


def _agents_options(ping_ms: int) -> list[tuple[str, int]]:
    direct = ("grpc.enable_http_proxy", 0)
    agents = dict(CHANNEL_OPTIONS)
    if ping_ms:  # their answers may take what a busy machine makes them take
        agents |= {"grpc.keepalive_time_ms": ping_ms}
        agents |= dict.fromkeys(("grpc.keepalive_timeout_ms", "grpc.http2.ping_timeout_ms"), int(PATIENCE_S * 1000))
    return [*agents.items(), direct]


if __name__ == "__main__":
    sys.exit(main())
