"""The channels to planners that share a store, and which of these planners is spoken to."""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc

from trainer_agent.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from dip.connecting import Endpoint, Endpoints

KEEPALIVE_TIME_MS, KEEPALIVE_TIMEOUT_MS = 10_000, 5_000
MAX_MESSAGE_BYTES = 64 * 1024 * 1024

# How long after it was left the preferred planner is asked again: longer from time to time.
FIRST_RETURN_S, LAST_RETURN_S = 60.0, 600.0

# Channels of the process that this one was forked from: kept, because closing them here would disturb their owner.
_INHERITED: list[grpc.Channel] = []


@dataclass(eq=False, kw_only=True, slots=True)
class Connection:
    """A channel to one planner.

    Parameters
    ----------
    endpoint
        Where it listens.
    channel
        The channel, which connects with its first call.
    left
        Why the planner was left for another one; empty while it was not. The channel is closed then.
    """

    endpoint: Endpoint
    channel: grpc.Channel
    left: str = ""


class Connections:
    """One lazily opened channel to each planner. Safe to use from several threads, and after a fork.

    All calls go to one planner at a time, at first to the preferred one. Where it is left, the next one has its turn
    and everything that is under way at the one that was left ends: it would only wait for what may never come.

    Some time after the preferred planner was left, it is asked whether it is back (`preferred_if_due`): were it never
    returned to, a restart of all planners, one after the other, would leave every agent at the last of them.

    A forked process (a data loader's worker) opens channels of its own and leaves its parent's alone.

    Parameters
    ----------
    endpoints
        Where the planners listen. Where it is one, it is never left.
    returning
        How long to wait before the preferred planner is asked again. It is never reset: a planner that is left again
        and again is returned to less often.
    clock
        Seconds that only go forward.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        *,
        returning: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._endpoints = endpoints.each
        self._returning = returning or Backoff(initial_s=FIRST_RETURN_S, maximum_s=LAST_RETURN_S)
        self._clock = clock
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._open: dict[Endpoint, Connection] = {}
        self._turn = 0
        self._return_at = 0.0
        self._asking = False
        self._closed = False

    @property
    def endpoint(self) -> Endpoint:
        """Where the planner listens that is spoken to."""
        return self._endpoints[self._turn]

    @contextmanager
    def current(self) -> Iterator[Connection | None]:
        """Hold the connection to the planner that is spoken to while a call begins; None: all are closed for good.

        It is not closed meanwhile: gRPC crashes the process where a call is prepared on a channel that is closed.
        """
        with self._guard():
            yield None if self._closed else self._connection(self.endpoint)

    @contextmanager
    def all(self) -> Iterator[list[Connection]]:
        """Like `current`, the connections to all planners, the preferred one's first; none once they are closed."""
        with self._guard():
            yield [] if self._closed else [self._connection(endpoint) for endpoint in self._endpoints]

    @contextmanager
    def preferred_if_due(self) -> Iterator[Connection | None]:
        """Like `current`, the connection to the preferred planner, if another is spoken to and it is time to ask.

        Whoever gets one says with `returned` what came of it.
        """
        with self._guard():
            due = self._turn and not self._asking and not self._closed and self._clock() >= self._return_at
            self._asking = self._asking or bool(due)
            yield self._connection(self._endpoints[0]) if due else None

    def returned(self, connection: Connection, *, back: bool) -> None:
        """Speak to the preferred planner again, or ask it again later.

        What is under way at the other one goes on there: nothing is wrong with it. A preferred planner that is away is
        let alone until then: an open channel would try to connect every second.

        Parameters
        ----------
        connection
            What the planner was asked on.
        back
            Whether it answers.
        """
        with self._guard():
            self._asking = False
            if back:
                self._turn = 0
                return
            self._return_at = self._clock() + self._returning.next_delay_s()
            idle = self._turn != 0 and self._open.get(connection.endpoint) is connection
            if idle:
                del self._open[connection.endpoint]
        if idle:
            # Not here: gRPC tells of answers on a thread of the channel, which its closing waits for.
            threading.Thread(target=connection.channel.close, name="close", daemon=True).start()

    def open_at(self, endpoint: Endpoint) -> Connection | None:
        """Return the connection to a planner, if one is open."""
        with self._guard():
            return self._open.get(endpoint)

    def leave(self, connection: Connection, reason: str) -> bool:
        """Close a connection and, if its planner is the one that is spoken to, give the next its turn.

        Does nothing where it was left before, as several threads may notice at once, and where there is no other
        planner.

        Parameters
        ----------
        connection
            The connection.
        reason
            Why, for whoever is waiting there.

        Returns
        -------
        bool
            Whether anything was done.
        """
        with self._guard():
            if len(self._endpoints) == 1 or self._open.get(connection.endpoint) is not connection:
                return False
            del self._open[connection.endpoint]
            connection.left = reason
            if connection.endpoint == self.endpoint:
                self._take((self._turn + 1) % len(self._endpoints))
        connection.channel.close()
        return True

    def speak_to(self, endpoint: Endpoint) -> None:
        """Give a planner its turn."""
        with self._guard():
            turn = self._endpoints.index(endpoint)
            if turn != self._turn:
                self._take(turn)

    def close(self) -> None:
        """Cancel what is under way and close all channels. Does nothing in a forked process."""
        if self._pid != os.getpid():
            return
        with self._lock:
            self._closed = True
            left = list(self._open.values())
            self._open.clear()
        for connection in left:
            connection.channel.close()

    def _guard(self) -> threading.Lock:
        """Return the lock of this process; a forked one starts afresh, whatever its parent's threads were doing."""
        pid = os.getpid()
        if self._pid != pid:
            self._lock = threading.Lock()
            _INHERITED.extend(connection.channel for connection in self._open.values())
            self._open = {}
            self._asking = False
            self._pid = pid
        return self._lock

    def _connection(self, endpoint: Endpoint) -> Connection:
        if endpoint not in self._open:
            channel = grpc.insecure_channel(endpoint.target, options=channel_options(endpoint))
            self._open[endpoint] = Connection(endpoint=endpoint, channel=channel)
        return self._open[endpoint]

    def _take(self, turn: int) -> None:
        if self._turn == 0:
            self._return_at = self._clock() + self._returning.next_delay_s()
        self._turn = turn


def channel_options(endpoint: Endpoint) -> list[tuple[str, int]]:
    """Return gRPC's settings for a channel to a planner.

    Pings every 10 s keep idle streams alive through middleboxes, and a planner that is stopped or cut off is noticed
    within 15 s; a planner must allow them that often. Reconnection is left to the callers' own backoff, so gRPC's own
    is kept below it. Channels share no connections, so that one agent's closing or backing off is no other's matter.
    """
    return [
        ("grpc.keepalive_time_ms", KEEPALIVE_TIME_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
        # What a silent peer is given up by (grpcio 1.85): a minute otherwise, whatever the line above says.
        ("grpc.http2.ping_timeout_ms", KEEPALIVE_TIMEOUT_MS),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.initial_reconnect_backoff_ms", 50),
        ("grpc.min_reconnect_backoff_ms", 1_000),
        ("grpc.max_reconnect_backoff_ms", 1_000),
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.use_local_subchannel_pool", 1),
        *([("grpc.enable_http_proxy", 0)] if endpoint.local else []),
    ]
