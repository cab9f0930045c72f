"""Asks a Redis, one question at a time on each of few connections, and says in the store's words why it refuses."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from typing import TYPE_CHECKING, Any, Final

from redis.asyncio import BlockingConnectionPool, Connection, Redis, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    InvalidResponse,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from planner_service import logs, metrics
from planner_service.store.records import StoreAwayError, StoreError, StoreFullError
from planner_service.store.redis_server_facts import UnusableRedisError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from planner_service.store.redis_address import RedisAddress
    from planner_service.store.redis_scripts import Script

_LOG: Final = logging.getLogger(__name__)
_MAX_CONNECTIONS: Final = 16
_QUIET_S: Final = 60.0  # the same refusal is logged once in this time


class RedisClient:
    """Connections to one Redis.

    Parameters
    ----------
    timeout_s
        How long an answer may take, with the wait for a connection and for its being made.
    """

    def __init__(self, address: RedisAddress, *, timeout_s: float) -> None:
        self.address = address
        self.timeout_s = timeout_s
        self.on_moved: Callable[[], None] = lambda: None
        """Called where the server says that another one is the primary by now."""
        self.on_back: Callable[[], None] = lambda: None
        """Called where it answers again: whoever was refused may ask again."""
        self.on_available: Callable[[bool], None] = lambda _: None
        """Called where it begins or ceases to answer."""
        self._answers: bool | None = None
        self._ever_answered = False
        self._warned = ("", 0.0)
        self._asking: set[asyncio.Task[Any]] = set()
        self._pool: Any = BlockingConnectionPool(
            connection_class=SSLConnection if address.tls else Connection,
            max_connections=_MAX_CONNECTIONS,
            timeout=None,  # timeout_s bounds the whole
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            # A connection that a restarted server left dead is found out when it is used. Scripts may run twice.
            retry=Retry(NoBackoff(), 1, supported_errors=(RedisConnectionError,)),
            protocol=2,
            **address.connection_options(),
        )
        self._redis: Any = Redis(connection_pool=self._pool)

    @property
    def answers(self) -> bool:
        """Whether it answered when it was asked last."""
        return self._answers is True

    async def run(self, script: Script, *arguments: bytes | str | int) -> Any:
        """Run a script.

        Raises
        ------
        StoreFullError
            It would need room that there is not.
        StoreAwayError
            There is no answer, or not one to the question.
        """
        return await self._ask(self._run(script, arguments))

    async def command(self, *arguments: bytes | str | int) -> Any:
        """Run one command; raises as `run` does."""
        return await self._ask(self._redis.execute_command(*arguments))

    def connection(self) -> Any:
        """Make a `redis.asyncio.Connection` of the caller's own, not yet connected."""
        made = self._pool.make_connection()
        made.retry = Retry(NoBackoff(), 0)
        return made

    async def close(self) -> None:
        """Wait for the answers that are under way, and disconnect."""
        if self._asking:
            await asyncio.wait(self._asking)
        await self._pool.aclose()

    def note(self, error: StoreError | None) -> None:
        """Take note of whether it answers; the log has a line each time that this changes."""
        before, self._answers = self._answers, error is None
        self._ever_answered |= self._answers
        with logs.afresh():  # whoever asked just now is not who it is about
            if error is not None and before is not False:
                _LOG.warning("the store is away: %s", error)
                self.on_available(False)
            if error is None and before is not True:
                _LOG.info("the store is there: %s", self.address)
                self.on_available(True)
                self.on_back()

    def refusal(self, error: RedisError | OSError) -> StoreError:
        """Return in the store's words what an error means."""
        text = self.address.hide(str(error)) or type(error).__name__
        match error:
            case OutOfMemoryError():
                return StoreFullError(f"{self.address} is full: {text}; it needs a higher maxmemory")
            case AuthenticationError():
                return UnusableRedisError(
                    f"{self.address} refuses user or password in {self.address.password_setting}: {text}"
                )
            case NoPermissionError():
                return UnusableRedisError(f"{self.address} forbids the user in DIP_STORE what it needs: {text}")
            case TimeoutError() | RedisTimeoutError():
                return StoreAwayError(f"{self.address} did not answer within {self.timeout_s} s{self._tls_hint()}")
        if _is_tls_error(error):
            return UnusableRedisError(
                f"{self.address} has no certificate that is trusted, or no TLS: {text}; "
                "DIP_STORE=rediss://...?ssl_ca_certs=/path names who is trusted"
            )
        if isinstance(error, ResponseError) and "DB index" in text:
            return UnusableRedisError(f"{self.address} has no such database as DIP_STORE names: {text}")
        if isinstance(error, ResponseError) and "unknown command" in text:
            return UnusableRedisError(f"{self.address} lacks a command that planners need: {text}")
        return StoreAwayError(f"{self.address}: {text}{self._plain_hint(error, text)}")

    def _tls_hint(self) -> str:
        if not self.address.tls or self._ever_answered:
            return ""
        return "; it may not speak TLS, which rediss:// asks for"

    def _plain_hint(self, error: RedisError | OSError, text: str) -> str:
        if self.address.tls or self._ever_answered or not isinstance(error, RedisConnectionError):
            return ""
        if isinstance(error, InvalidResponse) or " connecting to " in text:
            return ""  # it said what it is, or cannot be reached
        return "; it may speak TLS only, which rediss:// asks for, or refuse connections from here (protected mode)"

    async def _run(self, script: Script, arguments: tuple[bytes | str | int, ...]) -> Any:
        try:
            return await self._redis.execute_command("EVALSHA", script.digest, 0, *arguments)
        except NoScriptError:
            return await self._redis.execute_command("EVAL", script.source, 0, *arguments)

    async def _ask(self, question: Coroutine[Any, Any, Any]) -> Any:
        """Ask in a task of its own, which the caller's cancellation does not reach.

        A connection whose question was given up before its answer came would hand that to the next who asks.
        """
        task = asyncio.create_task(self._answer(question))
        self._asking.add(task)
        task.add_done_callback(self._asked)
        return await asyncio.shield(task)

    async def _answer(self, question: Coroutine[Any, Any, Any]) -> Any:
        asked_s = time.monotonic()
        try:
            async with asyncio.timeout(self.timeout_s):
                answer = await question
        except ResponseError as error:
            refusal = self.refusal(error)
            self._warn(refusal)
            if isinstance(error, ReadOnlyError):
                await self._leave()
        except (RedisError, OSError) as error:  # an OSError is the timeout, too
            refusal = self.refusal(error)
            self.note(refusal)
        else:
            self.note(None)
            metrics.store_answered(time.monotonic() - asked_s)
            return answer
        metrics.store_failed(_kind_of(refusal))
        raise refusal

    def _warn(self, refusal: StoreError) -> None:
        """Log what it answered instead of what was asked for, though not each time."""
        text, now_s = str(refusal), time.monotonic()
        if text != self._warned[0] or now_s - self._warned[1] > _QUIET_S:
            with logs.afresh():
                _LOG.warning("the store refuses: %s", text)
            self._warned = text, now_s

    async def _leave(self) -> None:
        """Drop connections, as those to come may reach the new primary."""
        await self._pool.disconnect(inuse_connections=False)
        self.on_moved()

    def _asked(self, task: asyncio.Task[Any]) -> None:
        self._asking.discard(task)
        if not task.cancelled():
            task.exception()  # nobody else may look at it


def _kind_of(refusal: StoreError) -> metrics.StoreFailure:
    match refusal:
        case StoreFullError():
            return "full"
        case UnusableRedisError():
            return "unusable"
        case _:
            return "away"


def _is_tls_error(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return True
        error = error.__cause__ or error.__context__
    return False
