"""A gRPC server that does nothing but write: the same bytes on as many streams as the planner, at once.

``python -m benchmarks.load.bare`` takes what the clients of a planner send. Once every replica has submitted an
iteration, it writes every rank's schedule.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import grpc.aio
from dip.planner.v1 import planner_pb2 as pb

from benchmarks.load.times import Times, now_ns
from benchmarks.load.work import Work
from planner_service.server.main import settle_garbage_collection

if TYPE_CHECKING:
    from collections.abc import Sequence

_Context = grpc.aio.ServicerContext[bytes, bytes]


class BareServer:
    """Writes bytes that were made beforehand."""

    def __init__(self, work: Work, times: Times) -> None:
        self._work = work
        self._times = times
        self._payloads = [work.fixed_responses(number) for number in range(work.batches)]
        self._submitted: defaultdict[int, int] = defaultdict(int)
        self._released: defaultdict[int, asyncio.Event] = defaultdict(asyncio.Event)

    def handler(self) -> grpc.GenericRpcHandler:
        """Methods under the names of the planner's, bytes in and out."""
        return grpc.method_handlers_generic_handler(
            pb.DESCRIPTOR.services_by_name["PlannerService"].full_name,
            {
                "SubmitBatch": grpc.unary_unary_rpc_method_handler(self._submit),
                "StreamSchedules": grpc.unary_stream_rpc_method_handler(self._stream),
            },
        )

    async def _submit(self, request: bytes, context: _Context) -> bytes:
        iteration = pb.SubmitBatchRequest.FromString(request).iteration
        self._submitted[iteration] += 1
        if self._submitted[iteration] == self._work.replicas:
            self._times.stored[iteration, :] = now_ns()
            self._released[iteration].set()
        return b""

    async def _stream(self, request: bytes, context: _Context) -> None:
        asked = pb.StreamSchedulesRequest.FromString(request)
        await context.send_initial_metadata(())
        for iteration in range(asked.first_iteration, self._times.iterations):
            await self._released[iteration].wait()
            # A field that is left out of one message is added by another one before it.
            number = pb.StreamSchedulesResponse(iteration=iteration).SerializeToString()
            await context.write(number + self._payloads[self._number(asked.replica, iteration)][asked.rank])

    def _number(self, replica: int, iteration: int) -> int:
        return (iteration * self._work.replicas + replica) % self._work.batches


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Work.from_json, required=True)
    parser.add_argument("--times", type=Path, required=True)
    parser.add_argument("--iterations", type=int, required=True)
    options = parser.parse_args(arguments)
    work = options.work
    times = Times(options.times, iterations=options.iterations, replicas=work.replicas, ranks=work.ranks)
    asyncio.run(_serve(BareServer(work, times)))
    return 0


async def _serve(bare: BareServer) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_reader(sys.stdin, stop.set)  # it ends where the benchmark does
    server = grpc.aio.server(handlers=(bare.handler(),), options=[("grpc.so_reuseport", 0)])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    settle_garbage_collection()
    sys.stdout.write(f"127.0.0.1:{port}\n")
    sys.stdout.flush()
    await stop.wait()
    await server.stop(grace=0)


if __name__ == "__main__":
    sys.exit(main())
