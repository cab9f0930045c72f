"""A network of bad quality: a TCP proxy whose delay and bandwidth can be changed, and that can be cut."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

_CHUNK_BYTES = 2**16
_CHUNKS_UNDER_WAY = 64
_PATIENCE_S = 240.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Quality:
    """How a network carries what is sent from now on.

    Parameters
    ----------
    delay_s
        One way.
    bytes_per_s
        Of each connection and direction; 0: without a limit.
    """

    delay_s: float = 0.0
    bytes_per_s: int = 0


PERFECT = Quality()


class Network:
    """Carries connections to a server, in a thread of its own; a context manager.

    Where it is cut nothing arrives any more, and nothing is closed: neither side learns of it, as where packets are
    dropped. What was sent meanwhile arrives once it is mended.

    Parameters
    ----------
    port
        The server's, on loopback.

    Attributes
    ----------
    port
        Where it listens itself, once entered.
    quality
        May be set at any time.
    bytes_from_clients
        What clients have sent so far.
    """

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._whole = asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._run, name="network", daemon=True)
        self.port = 0
        self.quality = PERFECT
        self.bytes_from_clients = 0

    def cut(self) -> None:
        """Let nothing arrive any more."""
        self._loop.call_soon_threadsafe(self._whole.clear)

    def mend(self) -> None:
        """Carry everything again."""
        self._loop.call_soon_threadsafe(self._whole.set)

    def __enter__(self) -> Self:
        self._thread.start()
        if not self._listening.wait(_PATIENCE_S):
            raise RuntimeError("the proxy does not listen")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(_PATIENCE_S)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._whole.set()
        server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._listening.set()
        await self._ended.wait()
        server.close()
        self._whole.set()
        await asyncio.gather(*self._connections)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry a connection until either side, or the network, is gone."""
        if (carrying := asyncio.current_task()) is not None:
            self._connections.add(carrying)
            carrying.add_done_callback(self._connections.discard)
        with contextlib.closing(writer), contextlib.suppress(OSError):
            await self._whole.wait()
            above, below = await asyncio.open_connection("127.0.0.1", self._server_port)
            with contextlib.closing(below):
                # Neither planners, nor Redis, nor their clients close one direction alone.
                ways = [self._pass(reader, below, counted=True), self._pass(above, writer), self._ended.wait()]
                tasks = [asyncio.ensure_future(way) for way in ways]
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, counted: bool = False) -> None:
        """Carry one direction of a connection to its end."""
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_CHUNKS_UNDER_WAY)
        arriving = asyncio.create_task(self._arrive(under_way, writer))
        sent_s, chunk = 0.0, b"any"
        try:
            while chunk:
                chunk, quality = await reader.read(_CHUNK_BYTES), self.quality
                self.bytes_from_clients += len(chunk) if counted else 0
                takes_s = len(chunk) / quality.bytes_per_s if quality.bytes_per_s else 0.0
                sent_s = max(sent_s, time.monotonic()) + takes_s
                await under_way.put((sent_s + quality.delay_s, chunk))
            await arriving
        finally:
            arriving.cancel()

    async def _arrive(self, under_way: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        """Write what arrives, until nothing does: the end."""
        with contextlib.suppress(OSError):
            while True:
                due_s, chunk = await under_way.get()
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))
                await self._whole.wait()
                if not chunk:
                    return
                writer.write(chunk)
                await writer.drain()
