"""Hears of changes in a Redis, wakes those in this process that wait for them, and notices when it was lost."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import AsyncExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from redis.exceptions import RedisError, ResponseError

from planner_service.loops import start_loop
from planner_service.store.records import ReplicaKey, StoreAwayError, StoreError
from planner_service.store.redis_server_facts import RedisFacts, UnusableRedisError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from planner_service.store.redis_client import RedisClient
    from planner_service.store.watches import Watches

CHANNEL: Final = "dip:1:changes"

_LOG: Final = logging.getLogger(__name__)
_QUIET_S: Final = 1.0  # after so long without a message it is asked whether it is still there
_FIRST_DELAY_S: Final = 0.05
_LAST_DELAY_S: Final = 1.0


class RedisListener:
    """One subscription, made again whenever it breaks.

    Messages are hints, and some are lost while there is no subscription: after each new one all watches are woken.

    Parameters
    ----------
    on_lost
        Called when the server behind the address is another start of it, or another server.
    """

    def __init__(self, client: RedisClient, watches: Watches, on_lost: Callable[[], None]) -> None:
        self._client = client
        self._watches = watches
        self._on_lost = on_lost
        self._run_id = ""
        self._advised = ""
        self._moved = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        client.on_moved = self._moved.set
        client.on_back = watches.wake_all

    async def start(self) -> None:
        """Subscribe; a server that is away is tried for again.

        Raises
        ------
        StoreError
            The server can never be used as it is set up.
        """
        connection = None
        try:
            connection = await self._subscribe()
        except UnusableRedisError as error:
            raise StoreError(str(error)) from None
        except StoreError as error:
            self._client.note(error)
        self._task = start_loop(self._listen(connection), "listen to the store")

    async def close(self) -> None:
        """Stop listening."""
        while self._task is not None and not self._task.done():
            self._task.cancel()  # again, as `asyncio.wait_for` of Python 3.11, which redis uses, may swallow it
            await asyncio.wait([self._task], timeout=_FIRST_DELAY_S)

    async def _listen(self, connection: Any) -> None:
        delay_s = _FIRST_DELAY_S
        while True:
            try:
                if connection is None:
                    await asyncio.sleep(delay_s * random.uniform(0.5, 1.0))
                    delay_s = min(2 * delay_s, _LAST_DELAY_S)
                    connection = await self._subscribe()
                delay_s = _FIRST_DELAY_S
                await self._follow(connection)
            except StoreError as error:
                self._client.note(error)
                connection = None

    async def _subscribe(self) -> Any:
        connection = self._client.connection()
        async with AsyncExitStack() as stack:
            stack.push_async_callback(connection.disconnect, nowait=True)
            with self._refusals():
                async with asyncio.timeout(self._client.timeout_s):
                    await connection.connect()
                    facts = RedisFacts.parse(await _ask(connection, "INFO"))
                    facts.check(str(self._client.address))
                    await _ask(connection, "SUBSCRIBE", CHANNEL)
            stack.pop_all()
        self._arrived(facts)
        return connection

    async def _follow(self, connection: Any) -> None:
        """Wake whom messages concern, until the connection breaks."""
        try:
            with self._refusals():
                while not self._moved.is_set():
                    await self._hear(connection)
        finally:
            await connection.disconnect(nowait=True)
        raise StoreAwayError(f"{self._client.address} is not the primary any more")

    async def _hear(self, connection: Any) -> None:
        message = await connection.read_response(timeout=_QUIET_S)
        if message is None:
            await connection.send_command("PING")
            try:
                message = await connection.read_response(timeout=self._client.timeout_s)
            except ResponseError:
                return  # it answers, although it may not be able to write to its disk
            if message is None:
                raise TimeoutError
            self._client.note(None)
        if message[0] == b"message":
            self._wake(message[2])

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        try:
            yield
        except (RedisError, OSError) as error:
            raise self._client.refusal(error) from None

    def _arrived(self, facts: RedisFacts) -> None:
        self._moved.clear()
        self._client.note(None)
        if facts.advice and facts.advice != self._advised:
            _LOG.warning("%s %s", self._client.address, facts.advice)
        self._advised = facts.advice
        if self._run_id and facts.run_id != self._run_id:
            _LOG.warning("%s was started anew: what it held may be lost", self._client.address)
            self._on_lost()
        self._run_id = facts.run_id
        self._watches.wake_all()

    def _wake(self, message: bytes) -> None:
        match message.decode(errors="replace").split(" "):
            case ["replica", job, attempt, replica] if attempt.isdecimal() and replica.isdecimal():
                job_id = unquote(job)
                self._watches.wake(ReplicaKey(job_id=job_id, attempt=int(attempt), replica=int(replica)))
            case ["job", job]:
                self._watches.wake_job(unquote(job))
            case ["queue"]:
                self._watches.wake_queue()
            case _:  # of a planner of another version, say
                self._watches.wake_all()


async def _ask(connection: Any, *command: Any) -> Any:
    await connection.send_command(*command)
    return await connection.read_response()
