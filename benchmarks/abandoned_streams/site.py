"""A job with nothing to stream and the clients of its streams, which leave in every way that there is."""

from __future__ import annotations

import asyncio
import contextlib
import math
import multiprocessing
import time
from typing import TYPE_CHECKING, Final

import grpc
import grpc.aio
from dip.digests import batch_digest
from dip.planner.v1 import planner_pb2 as pb
from dip.planner.v1 import planner_pb2_grpc as pb_grpc

from benchmarks.faults.network import Network
from benchmarks.fuzzing.requests import batch, register_job
from benchmarks.planner_process import CHANNEL_OPTIONS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from multiprocessing.connection import Connection

    Stream = grpc.aio.UnaryStreamCall[pb.StreamSchedulesRequest, pb.StreamSchedulesResponse]

PATIENCE_S: Final = 150.0
"""Longest wait for anything; a client without a word is found out within 80 s."""

_JOB_ID: Final = "job"
_NUMBER: Final = 1
_POLL_S: Final = 0.1
_PING_BYTES: Final = 17


class StreamSite:
    """Streams of one job, all of its rank 0.

    Parameters
    ----------
    address
        The planner's.
    most
        How many streams it lets be open.
    patience_s
        How long it may take until the planner lets go of streams that were left, and others can be opened.

    Attributes
    ----------
    refused
        Streams that could not be opened, however long that was tried.
    """

    def __init__(self, address: str, *, most: int, patience_s: float = PATIENCE_S) -> None:
        self._address = address
        self._most = most
        self._patience_s = patience_s
        self._iteration = 0
        self.refused = 0

    async def register(self) -> None:
        """Register the job."""
        async with channel(self._address) as stub:
            await stub.RegisterJob(register_job(_JOB_ID, _NUMBER, attempt=1), timeout=PATIENCE_S)

    async def cancel_wave(self, count: int) -> None:
        """Open streams on one connection, and cancel them all."""
        async with channel(self._address) as stub:
            opened = await open_in_time(stub, count, patience_s=self._patience_s)
            self.refused += count - len(opened)
            for stream in opened:
                stream.cancel()

    async def kill_wave(self, count: int) -> None:
        """Have another process open streams, and kill it."""
        ours, theirs = multiprocessing.Pipe()
        holder = multiprocessing.get_context("spawn").Process(
            target=_hold_streams, args=(self._address, count, self._patience_s, theirs), daemon=True
        )
        await asyncio.to_thread(holder.start)
        theirs.close()
        self.refused += count - await asyncio.to_thread(ours.recv)
        holder.kill()
        await asyncio.to_thread(holder.join, PATIENCE_S)
        ours.close()

    async def lose_wave(self, count: int) -> float:
        """Open streams from a place that falls silent; return the seconds until the planner counts none of them."""
        with self._network() as network:
            async with channel(_through(network)) as stub:
                opened = await open_in_time(stub, count, patience_s=self._patience_s)
                self.refused += count - len(opened)
                network.cut()
                return await self.until_none_counted()

    async def until_none_counted(self) -> float:
        """Wait until the planner counts no stream; return how many seconds it took, infinite where it took too long."""
        began_s = time.monotonic()
        while await self.counted():
            if time.monotonic() - began_s > PATIENCE_S:
                return float("inf")
            await asyncio.sleep(_POLL_S)
        return time.monotonic() - began_s

    async def still_counted(self) -> int:
        """Return how many streams the planner counts once it has had time to let go of all that were left."""
        return await self.counted() if math.isinf(await self.until_none_counted()) else 0

    async def counted(self) -> int:
        """Return how many streams the planner counts: those of all that it lets be open which cannot be opened."""
        async with channel(self._address) as stub:
            opened = await open_streams(stub, self._most)
            for stream in opened:
                stream.cancel()
            return self._most - len(opened)

    async def idle(
        self, seconds: float, options: Sequence[tuple[str, int]], *, least_pings: int = 0
    ) -> dict[str, float]:
        """Leave a stream idle, then have a batch planned.

        Parameters
        ----------
        seconds
            How long.
        options
            Of the channel.
        least_pings
            It stays idle for longer until so many pings were sent.

        Returns
        -------
        dict
            Pings that the client sent meanwhile, at most, and milliseconds from submitting the batch to its schedule.

        Raises
        ------
        grpc.aio.AioRpcError
            The stream ended.
        """
        made = batch(_NUMBER, self._iteration)
        with self._network() as network:
            async with channel(_through(network), options) as stub:
                (stream,) = await open_in_time(stub, 1, patience_s=self._patience_s, first_iteration=self._iteration)
                reading, sent_before, pings = asyncio.ensure_future(stream.read()), network.bytes_from_clients, -1
                while pings < least_pings and not reading.done():
                    await asyncio.wait({reading}, timeout=seconds)
                    pings = (network.bytes_from_clients - sent_before) // _PING_BYTES
                if reading.done():
                    raise RuntimeError(f"the idle stream gave {await reading}")
                began_s = time.monotonic()
                await self._submit(made)
                response = await asyncio.wait_for(reading, PATIENCE_S)
                milliseconds = (time.monotonic() - began_s) * 1000
                stream.cancel()
        if not isinstance(response, pb.StreamSchedulesResponse) or response.schedule.batch_digest != batch_digest(made):
            raise RuntimeError(f"the idle stream gave no schedule of the batch but {response}")
        self._iteration += 1
        return {"seconds": seconds, "pings": pings, "submit_to_schedule_ms": round(milliseconds, 1)}

    async def _submit(self, made: pb.Batch) -> None:
        async with channel(self._address) as stub:
            request = pb.SubmitBatchRequest(job_id=_JOB_ID, attempt=1, iteration=self._iteration, batch=made)
            await stub.SubmitBatch(request, timeout=PATIENCE_S)

    def _network(self) -> Network:
        return Network(int(self._address.rpartition(":")[2]))


def _through(network: Network) -> str:
    return f"127.0.0.1:{network.port}"


@contextlib.asynccontextmanager
async def channel(
    address: str, options: Sequence[tuple[str, int]] = CHANNEL_OPTIONS
) -> AsyncIterator[pb_grpc.PlannerServiceAsyncStub]:
    """Connect to a planner."""
    async with grpc.aio.insecure_channel(address, options=options) as connected:
        await connected.channel_ready()
        yield pb_grpc.PlannerServiceStub(connected)


async def open_streams(stub: pb_grpc.PlannerServiceAsyncStub, count: int, *, first_iteration: int = 0) -> list[Stream]:
    """Open streams; return those that the planner does not refuse."""
    request = pb.StreamSchedulesRequest(job_id=_JOB_ID, attempt=1, first_iteration=first_iteration)
    streams: list[Stream] = [stub.StreamSchedules(request) for _ in range(count)]
    for stream in streams:
        await stream.initial_metadata()  # sent as soon as the stream stands, or with the refusal
    # gRPC may tell that a refused stream has begun a moment before it tells of the refusal: not after the next answer.
    await stub.GetJob(pb.GetJobRequest(job_id=_JOB_ID), timeout=PATIENCE_S)
    opened = [stream for stream in streams if not stream.done()]
    for stream in streams:
        if stream.done() and (code := await stream.code()) != grpc.StatusCode.RESOURCE_EXHAUSTED:
            raise RuntimeError(f"a stream ends with {code.name}: {await stream.details()}")
    return opened


async def open_in_time(
    stub: pb_grpc.PlannerServiceAsyncStub, count: int, *, patience_s: float, first_iteration: int = 0
) -> list[Stream]:
    """Open streams as `open_streams` does, again where one is refused; return those that are open in the end."""
    until_s = time.monotonic() + patience_s
    opened = await open_streams(stub, count, first_iteration=first_iteration)
    while len(opened) < count and time.monotonic() < until_s:
        await asyncio.sleep(_POLL_S)
        opened += await open_streams(stub, count - len(opened), first_iteration=first_iteration)
    return opened


def _hold_streams(address: str, count: int, patience_s: float, says: Connection) -> None:
    """Open streams, say how many there are, and keep them until this process is killed."""
    asyncio.run(_hold(address, count, patience_s, says))


async def _hold(address: str, count: int, patience_s: float, says: Connection) -> None:
    async with channel(address) as stub:
        opened = await open_in_time(stub, count, patience_s=patience_s)
        says.send(len(opened))
        await asyncio.wait_for(asyncio.Event().wait(), PATIENCE_S)
