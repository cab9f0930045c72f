"""A TCP proxy that counts what passes, and can fall silent as a cut network does: nothing is said, nor closed."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

_CHUNK_BYTES = 2**16


class SilentProxy:
    """Passes connections on to a server until it falls silent; an asynchronous context manager.

    Parameters
    ----------
    address
        The server's, as host:port.

    Attributes
    ----------
    address
        Where it listens itself, once entered.
    bytes_from_clients
        What clients have sent so far.
    """

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._server_host, self._server_port = host, int(port)
        self._silent = False
        self._ended = asyncio.Event()
        self._connections: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.address = ""
        self.bytes_from_clients = 0

    def fall_silent(self) -> None:
        """Pass nothing on any more, in either direction, and keep all connections open."""
        self._silent = True

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        self._ended.set()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._connections)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving = asyncio.ensure_future(self._connect(reader, writer))
        self._connections.add(serving)
        await serving
        self._connections.discard(serving)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError), contextlib.closing(writer):  # either side may end it as it likes
            above, below = await asyncio.open_connection(self._server_host, self._server_port)
            self._writers |= {writer, below}
            with contextlib.closing(below):
                await asyncio.gather(self._pass(reader, below, counted=True), self._pass(above, writer, counted=False))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, counted: bool) -> None:
        while chunk := await reader.read(_CHUNK_BYTES):
            if self._silent:
                await self._ended.wait()
                return
            if counted:
                self.bytes_from_clients += len(chunk)
            writer.write(chunk)
            await writer.drain()
        writer.write_eof()
