"""What a child process writes to its standard error, in the log: with a time, a level and fields, as all that is there.

A solver that crashes says so with lines of Python's, of a library's in C++, or of the fault handler's, none of which
knows how the log is written.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from typing import TYPE_CHECKING, Final, Self

from planner_service.logs.fields import OUTPUT, Value, afresh
from planner_service.logs.throttle import Throttle

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_CHARACTERS: Final = 16_384
"""Of one line of the log; the rest comes in the next one."""

_SILENCE_S: Final = 0.3
"""After so long without another byte, what has come is a whole: a traceback is written line by line."""

_LAST_WORDS_S: Final = 1.0


class ChildOutput:
    """The standard error of one child; made by `open`, before the child is.

    Attributes
    ----------
    write_end
        Descriptor for the child, as its standard error.
    about
        Fields of what is written: whatever the child does just now.
    """

    def __init__(self, log: logging.Logger, reader: asyncio.StreamReader, transport: asyncio.ReadTransport) -> None:
        self.write_end = -1
        self.about: Mapping[str, Value] = {}
        self._throttle = Throttle(log)
        self._reader = reader
        self._transport = transport
        self._task = asyncio.create_task(self._follow())

    @classmethod
    async def open(cls, log: logging.Logger) -> Self:
        """Make a pipe.

        Raises
        ------
        OSError
            There is none to be had.
        """
        read_end, write_end = os.pipe()
        reader = asyncio.StreamReader(limit=2 * MOST_CHARACTERS)
        file = os.fdopen(read_end, "rb", buffering=0)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
        made = cls(log, reader, transport)
        made.write_end = write_end
        return made

    def is_inherited(self) -> None:
        """Let go of this process's copy of the child's end, once the child has its own."""
        if self.write_end >= 0:
            os.close(self.write_end)
            self.write_end = -1

    async def end(self) -> None:
        """Write what the child wrote last; it has ended by now."""
        self.is_inherited()
        await asyncio.wait({self._task}, timeout=_LAST_WORDS_S)
        self._task.cancel()
        self._transport.close()

    async def _follow(self) -> None:
        while text := await self._next():
            with afresh(**self.about):
                self._throttle.line(logging.WARNING, "a child process wrote", kind={}, **{OUTPUT: text})

    async def _next(self) -> str:
        """Read what belongs together; empty at the end."""
        read = await self._reader.read(MOST_CHARACTERS)
        with contextlib.suppress(TimeoutError):
            while len(read) < MOST_CHARACTERS:
                async with asyncio.timeout(_SILENCE_S):
                    more = await self._reader.read(MOST_CHARACTERS - len(read))
                if not more:
                    break
                read += more
        return read.decode(errors="replace")
