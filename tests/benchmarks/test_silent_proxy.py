"""Shows that the proxy passes everything on, tells of ends, and passes and tells nothing once it has fallen silent."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from benchmarks.abandoned_streams.silent_proxy import SilentProxy

PATIENCE_S = 30.0


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while received := await reader.read(100):
        writer.write(received)
    writer.close()


async def through_proxy(*, silent: bool) -> bytes:
    """Return what an echoing server says to a client that hangs up, before or after the proxy falls silent."""
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server, SilentProxy(f"127.0.0.1:{server.sockets[0].getsockname()[1]}") as proxy:
        host, _, port = proxy.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        with contextlib.closing(writer):
            writer.write(b"first")
            assert await asyncio.wait_for(reader.readexactly(5), PATIENCE_S) == b"first"
            if silent:
                proxy.fall_silent()
            writer.write(b"second")
            writer.write_eof()
            assert proxy.bytes_from_clients == 5
            return await asyncio.wait_for(reader.read(), 0.3 if silent else PATIENCE_S)


def test_it_passes_everything_on_and_tells_of_the_end() -> None:
    assert asyncio.run(through_proxy(silent=False)) == b"second"


def test_silence_looks_like_a_server_that_thinks() -> None:
    with pytest.raises(TimeoutError):
        asyncio.run(through_proxy(silent=True))
