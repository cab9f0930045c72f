"""Trainers of some replicas in one process: they submit batches, hold a stream a rank, and stamp what they receive.

``python -m benchmarks.load.client`` says "ready" once its streams are open. Each line that it reads then, ``first count
period_us begin_ns``, has it run so many iterations, evenly over time, or at once where the period is 0; it says how
many schedules it has received and checked since it started.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import grpc.aio
from dip.digests import streamed_digest
from dip.planner.v1 import planner_pb2 as pb
from dip.planner.v1.planner_pb2_grpc import PlannerServiceStub

from benchmarks.load.times import Times, now_ns
from benchmarks.load.work import Work

if TYPE_CHECKING:
    from collections.abc import Sequence

STREAM_PATH = "/dip.planner.v1.PlannerService/StreamSchedules"
MAX_MESSAGE_BYTES = 64 * 2**20
LOOK_AHEAD = 4
"""Iterations of a replica that wait for a plan at most: where the planner is slower, so are its trainers."""
_OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),  # otherwise channels to one address share a connection
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
)
Call = grpc.aio.UnaryStreamCall[pb.StreamSchedulesRequest, bytes]
OpenStream = grpc.aio.UnaryStreamMultiCallable[pb.StreamSchedulesRequest, bytes]


class WrongScheduleError(Exception):
    """What a rank received is not what it may run."""


class Trainers:
    """The trainers of some replicas, each rank with a stream.

    Parameters
    ----------
    replicas
        The job's replicas that are here.
    addresses
        Planners; replicas take them in turn.
    streams_a_channel
        Streams that share one connection.
    """

    def __init__(
        self, work: Work, times: Times, replicas: range, addresses: Sequence[str], *, streams_a_channel: int
    ) -> None:
        self._work = work
        self._times = times
        self._replicas = replicas
        self._addresses = addresses
        self._streams_a_channel = streams_a_channel
        self._channels: list[grpc.aio.Channel] = []
        self._submitters = {address: PlannerServiceStub(self._channel(address)).SubmitBatch for address in addresses}
        self._unchecked: defaultdict[int, dict[tuple[int, int], bytes]] = defaultdict(dict)
        self._complete: asyncio.Queue[int] = asyncio.Queue()
        self._arrived: defaultdict[tuple[int, int], int] = defaultdict(int)
        self._ahead = {replica: asyncio.Semaphore(LOOK_AHEAD) for replica in replicas}
        self.checked = 0

    async def open(self, tasks: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Open every stream, and read it in a task of its own."""
        calls = {}
        for address in self._addresses:
            keys = [
                (replica, rank)
                for replica in self._replicas
                if self._address(replica) == address
                for rank in range(self._work.ranks)
            ]
            for start in range(0, len(keys), self._streams_a_channel):
                open_stream: OpenStream = self._channel(address).unary_stream(
                    STREAM_PATH, request_serializer=pb.StreamSchedulesRequest.SerializeToString
                )
                for replica, rank in keys[start : start + self._streams_a_channel]:
                    calls[replica, rank] = open_stream(self._work.stream(replica, rank, 0), wait_for_ready=True)
        for call in calls.values():
            await call.initial_metadata()
        return [tasks.create_task(self._read(*key, call)) for key, call in calls.items()]

    async def run(self, first: int, count: int, period_us: int, begin_ns: int) -> None:
        """Submit iterations, and wait until every schedule of them has come and is right."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._check(count))
            for replica in self._replicas:
                tasks.create_task(self._submit_all(replica, range(first, first + count), period_us, begin_ns))

    async def _submit_all(self, replica: int, iterations: range, period_us: int, begin_ns: int) -> None:
        """Submit every iteration of a replica when its turn comes, and it is not too far ahead of what was received."""
        for turn, iteration in enumerate(iterations):
            due_ns = begin_ns + (turn + replica / self._work.replicas) * period_us * 1_000
            await asyncio.sleep(max(0.0, (due_ns - now_ns()) / 1e9))
            await self._ahead[replica].acquire()
            submitted = self._work.submission(replica, iteration)
            await self._submitters[self._address(replica)](submitted, wait_for_ready=True)

    async def _read(self, replica: int, rank: int, call: Call) -> None:
        """Stamp what comes, and put it aside."""
        iteration = 0
        async for payload in call:
            self._times.received[iteration, replica, rank] = now_ns()
            together = self._unchecked[iteration]
            together[replica, rank] = payload
            if len(together) == len(self._replicas) * self._work.ranks:
                self._complete.put_nowait(iteration)
            self._arrived[iteration, replica] += 1
            if self._arrived[iteration, replica] == self._work.ranks:
                del self._arrived[iteration, replica]
                self._ahead[replica].release()
            iteration += 1

    async def _check(self, count: int) -> None:
        """Check iterations once they have come, with other work in between, so that none waits long for it."""
        for _ in range(count):
            iteration = await self._complete.get()
            digests: dict[int, bytes] = {}
            for (replica, rank), payload in self._unchecked.pop(iteration).items():
                digest = plan_digest_of(payload, iteration=iteration, rank=rank)
                if digests.setdefault(replica, digest) != digest:
                    raise WrongScheduleError(f"iteration {iteration}, replica {replica}: rank {rank} has another plan")
                self.checked += 1
                await asyncio.sleep(0)

    def _channel(self, address: str) -> grpc.aio.Channel:
        channel = grpc.aio.insecure_channel(address, options=_OPTIONS)
        self._channels.append(channel)
        return channel

    def _address(self, replica: int) -> str:
        return self._addresses[replica % len(self._addresses)]


def plan_digest_of(payload: bytes, *, iteration: int, rank: int) -> bytes:
    """Digest of the plan that a response belongs to.

    Raises
    ------
    WrongScheduleError, ValueError
        It is not a rank's searched schedule of an iteration.
    """
    response = pb.StreamSchedulesResponse.FromString(payload)
    if response.iteration != iteration or response.schedule.schedule.rank != rank or response.schedule.fallback:
        raise WrongScheduleError(
            f"iteration {iteration} of rank {rank} was asked for; came iteration {response.iteration} of rank "
            f"{response.schedule.schedule.rank}, fallback {response.schedule.fallback}, {response.unplanned_reason!r}"
        )
    return streamed_digest(response.schedule)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the lines of standard input ask for, until they end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Work.from_json, required=True)
    parser.add_argument("--times", type=Path, required=True)
    parser.add_argument("--iterations", type=int, required=True)
    parser.add_argument("--first-replica", type=int, required=True)
    parser.add_argument("--replicas", type=int, required=True)
    parser.add_argument("--streams-a-channel", type=int, required=True)
    parser.add_argument("addresses", nargs="+")
    options = parser.parse_args(arguments)
    work = options.work
    times = Times(options.times, iterations=options.iterations, replicas=work.replicas, ranks=work.ranks)
    replicas = range(options.first_replica, options.first_replica + options.replicas)
    asyncio.run(_obey(work, times, replicas, options))
    return 0


async def _obey(work: Work, times: Times, replicas: range, options: argparse.Namespace) -> None:
    trainers = Trainers(work, times, replicas, options.addresses, streams_a_channel=options.streams_a_channel)
    async with asyncio.TaskGroup() as reading:
        readers = await trainers.open(reading)
        gc.freeze()  # collecting what hundreds of streams need would stop this process for tens of milliseconds
        _say("ready")
        while line := await asyncio.to_thread(sys.stdin.readline):
            first, count, period_us, begin_ns = (int(word) for word in line.split())
            await trainers.run(first, count, period_us, begin_ns)
            _say(str(trainers.checked))
        for reader in readers:
            reader.cancel()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
