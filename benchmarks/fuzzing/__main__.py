"""Whether anything that a client sends breaks the planner: ``python -m benchmarks.fuzzing [--inputs 100000]``.

Starts a planner and sends inputs to every method: messages drawn from the contract's descriptors, valid requests with
a few fields changed, spoiled bytes, valid requests in strange orders, methods that there are not, and connections that
speak another protocol. After each chunk the batch of a job that does nothing wrong must be planned, the planner must
say SERVING, and its log must tell of no error.

Prints JSON: inputs by method and kind, how they ended by status, whatever the contract does not allow with an
example of it, and the planner's memory. An input depends on ``--seed`` and its number alone: ``--first`` begins
at another. Exit code 1 where something was not allowed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

import grpc.aio

from benchmarks.fuzzing.calls import send
from benchmarks.fuzzing.good_job import GoodJob
from benchmarks.fuzzing.inputs import draw_case
from benchmarks.fuzzing.planner import MOST_JOBS, PLANNER
from benchmarks.planner_process import CHANNEL_OPTIONS, PlannerProcess
from planner_service import settings as names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.fuzzing.calls import Ending
    from benchmarks.fuzzing.inputs import Input

_TIME: Final = re.compile(r"^\d\S+ \S+ ")
_AT_ONCE: Final = 48
_MEMORY_READINGS: Final = 10
_EXAMPLES: Final = 20
_SHOWN_BYTES: Final = 512
_MAX_RECEIVED_BYTES: Final = 64 * 2**20


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz, and print what came of it; 1 if something happened that the contract does not allow."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzzing", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--inputs", type=int, default=100_000, help="calls to make")
    parser.add_argument("--seed", type=int, default=0, help="decides all inputs")
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--chunk", type=int, default=1_000, help="calls between two good requests")
    parser.add_argument("--store", default="memory://", help="DIP_STORE of the planner")
    options = parser.parse_args(arguments)
    with PlannerProcess(PLANNER | {names.STORE: options.store}) as planner:
        result = {"settings": vars(options)} | asyncio.run(fuzz(planner, options))
    sys.stdout.write(json.dumps(result, indent=2) + "\n")
    return 1 if result["not_allowed"] else 0


async def fuzz(planner: PlannerProcess, options: argparse.Namespace) -> dict[str, object]:
    """Send all inputs to a planner, chunk by chunk, and tell what came of it."""
    began_s, tally, cases = time.monotonic(), _Tally(options.seed), _cases(options.seed, options.first)
    limits = (("grpc.max_receive_message_length", _MAX_RECEIVED_BYTES),)
    memory: dict[int, int] = {}
    async with (
        grpc.aio.insecure_channel(planner.address, options=(*CHANNEL_OPTIONS, *limits)) as hostile,
        grpc.aio.insecure_channel(planner.address, options=CHANNEL_OPTIONS) as own,
    ):
        await asyncio.gather(hostile.channel_ready(), own.channel_ready())
        good = GoodJob(own)
        await good.register()
        await good.plan_next()
        memory[0] = planner.resident_mib()
        while tally.inputs < options.inputs and not tally.broken:
            until = min(options.inputs, tally.inputs + options.chunk)
            await asyncio.gather(*(_send_until(until, hostile, planner, cases, tally) for _ in range(_AT_ONCE)))
            await _check(planner, good, tally)
            if tally.inputs * _MEMORY_READINGS // options.inputs >= len(memory):
                memory[tally.inputs] = planner.resident_mib()
    seconds = time.monotonic() - began_s
    return tally.result() | {
        "resident_mib": memory,
        "seconds": round(seconds, 1),
        "inputs_per_second": round(tally.inputs / seconds, 1),
    }


def _cases(seed: int, first: int) -> Iterator[tuple[int, list[Input]]]:
    number = first
    while True:
        yield number, draw_case(seed, number)
        number += 1


async def _send_until(
    inputs: int,
    channel: grpc.aio.Channel,
    planner: PlannerProcess,
    cases: Iterator[tuple[int, list[Input]]],
    tally: _Tally,
) -> None:
    """Send one case after another until so many inputs were sent by all senders together."""
    while tally.inputs < inputs and planner.alive:
        number, case = next(cases)
        for sent in case:
            tally.inputs += 1
            tally.note(number, sent, await send(channel, planner.address, sent))


async def _check(planner: PlannerProcess, good: GoodJob, tally: _Tally) -> None:
    """See that the planner lives and does for others what it did before."""
    if not planner.alive:
        tally.breaks(f"the planner ended, its log:\n{planner.log()[-2_000:]}")
        return
    try:
        await good.plan_next()
        await good.make_room(MOST_JOBS // 2)
        if not await asyncio.to_thread(planner.is_serving):
            tally.breaks("its health is not SERVING")
    except (grpc.RpcError, RuntimeError) as error:
        tally.breaks(f"a good request fails: {error}")
    tally.note_log(planner.troubles())


class _Tally:
    """What was sent and how it ended."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.inputs = 0
        self.broken: list[str] = []
        self._sent: dict[str, Counter[str]] = {}
        self._codes: Counter[str] = Counter()
        self._codes_of: dict[str, Counter[str]] = {}
        self._schedules = 0
        self._faults: Counter[str] = Counter()
        self._examples: list[dict[str, object]] = []

    def note(self, number: int, sent: Input, ending: Ending) -> None:
        """Count one input."""
        method = sent.method if sent.kind not in ("unknown method", "connection") else f"({sent.kind})"
        self._sent.setdefault(method, Counter())[sent.kind] += 1
        self._codes[ending.code] += 1
        self._codes_of.setdefault(method, Counter())[ending.code] += 1
        self._schedules += ending.schedules
        if not ending.fault:
            return
        self._faults[ending.fault] += 1
        if len(self._examples) < _EXAMPLES:
            self._examples.append(
                {
                    "fault": ending.fault,
                    "code": ending.code,
                    "details": ending.details[:_SHOWN_BYTES],
                    "seed": self._seed,
                    "number": number,
                    "kind": sent.kind,
                    "method": sent.method[:_SHOWN_BYTES],
                    "request_bytes": len(sent.request),
                    "request_begins": sent.request[:_SHOWN_BYTES].hex(),
                }
            )

    def note_log(self, troubles: list[str]) -> None:
        """Count the errors of a log that is read from its beginning each time; when they were said does not count."""
        said = Counter(_TIME.sub("", line) for line in troubles)
        for line, count in said.items():
            self._faults[f"its log says: {line}"] = count

    def breaks(self, what: str) -> None:
        """Note that the planner is not what it was."""
        self.broken.append(what)

    def result(self) -> dict[str, object]:
        """Tell it all."""
        return {
            "inputs": self.inputs,
            "by_method": {method: dict(kinds) for method, kinds in sorted(self._sent.items())},
            "codes": dict(self._codes.most_common()),
            "codes_by_method": {method: dict(codes.most_common()) for method, codes in sorted(self._codes_of.items())},
            "schedules_streamed": self._schedules,
            "not_allowed": dict(self._faults) | {what: 1 for what in self.broken},
            "examples": self._examples,
        }


if __name__ == "__main__":
    sys.exit(main())
