"""Requests decoded so that no client's hold everybody up: the event loop does nothing else while one is decoded.

What is small is decoded at once. Of what is large the messages in it are counted first, and each client has one such
request decoded at a time, and rests afterwards.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, TypeVar

from dip.errors import FieldViolation, InvalidRequestError
from dip.validation.limits import MAX_INSTANCES, MAX_MICROBATCHES

from planner_service.access import current_caller
from planner_service.server.parts import has_more_parts
from planner_service.server.turns import Turns

if TYPE_CHECKING:
    from google.protobuf.message import Message

MOST_PARTS: Final = 3 * MAX_INSTANCES + MAX_MICROBATCHES
"""Messages in one request: what the largest batch has that may be. They take half a gigabyte and a second at most."""

LARGE_BYTES: Final = 2**19
"""As many as decode in a twentieth of a second, whatever they are."""

_REST: Final = 4
"""Times what a large request took to decode, for which the client's next one waits: a fifth of the time is its most."""

M = TypeVar("M", bound="Message")


class Decoder:
    """Decodes requests. For use from one event loop.

    Parameters
    ----------
    large_bytes, most_parts
        As the constants.
    """

    def __init__(self, *, large_bytes: int = LARGE_BYTES, most_parts: int = MOST_PARTS) -> None:
        self._large_bytes = large_bytes
        self._most_parts = most_parts
        self._turns = Turns(most=1)

    async def decode(self, request: bytes, kind: type[M]) -> M:
        """Make a message of its bytes.

        Raises
        ------
        DecodeError
            They are none.
        InvalidRequestError
            It holds too many messages.
        """
        if len(request) <= self._large_bytes:
            return kind.FromString(request)
        async with self._turns.turn(current_caller().name):
            if await asyncio.to_thread(has_more_parts, request, kind, self._most_parts):
                what = f"holds more than {self._most_parts} messages, counted at every depth; must be no more"
                raise InvalidRequestError((FieldViolation(field="", description=f"the request {what}"),))
            began_s = time.thread_time()
            message = kind.FromString(request)
            await asyncio.sleep(_REST * (time.thread_time() - began_s))
        return message
