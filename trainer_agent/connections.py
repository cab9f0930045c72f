"""The channels to planners that share a store, and which of these planners is spoken to."""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from dip.connecting import Credentials

from trainer_agent.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import grpc
    from dip.connecting import Endpoint, Endpoints
    from dip.connecting.tls import Tls

KEEPALIVE_TIME_MS, KEEPALIVE_TIMEOUT_MS = 10_000, 5_000
MAX_MESSAGE_BYTES = 64 * 1024 * 1024

# gRPC's settings for every channel. Pings every 10 s keep idle streams alive through middleboxes, and a planner that is
# stopped or cut off is noticed within 15 s; a planner must allow them that often. Reconnection is left to the callers'
# own backoff, so gRPC's own is kept below it. Channels share no connections, so that one agent's closing or backing off
# is no other's matter, and new certificates are shown on a new connection.
CHANNEL_OPTIONS = (
    ("grpc.keepalive_time_ms", KEEPALIVE_TIME_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    # What a silent peer is given up by (grpcio 1.85): a minute otherwise, whatever the line above says.
    ("grpc.http2.ping_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 50),
    # Whatever its name says: how long one connection may take to be made, TLS and all, from far away, too.
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.use_local_subchannel_pool", 1),
)

# How long after it was left the preferred planner is asked again: longer from time to time.
FIRST_RETURN_S, LAST_RETURN_S = 60.0, 600.0

_NONE = Credentials()

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
    tls
        What its TLS is made with, for good; None: there is none.
    left
        Why the planner was left for another one; empty while it was not. The channel is closed then.
    under_way
        Number of calls that began on the channel and have not ended: counted by who begins them, while the connection
        is held.
    """

    endpoint: Endpoint
    channel: grpc.Channel
    tls: Tls | None = None
    left: str = ""
    under_way: int = 0


class Connections:
    """One lazily opened channel to each planner. Safe to use from several threads, and after a fork.

    All calls go to one planner at a time, at first to the preferred one. Where it is left, the next one has its turn
    and everything that is under way at the one that was left ends: it would only wait for what may never come.

    Some time after the preferred planner was left, it is asked whether it is back (`preferred_if_due`): were it never
    returned to, a restart of all planners, one after the other, would leave every agent at the last of them.

    A channel keeps the certificates that it was made with. Where these have changed, calls that begin get a channel of
    their own; what is under way on the one before goes on there, and with its end that channel is closed.

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
        self._outdated: list[Connection] = []
        self._turn = 0
        self._return_at = 0.0
        self._asking = False
        self._closed = False

    @property
    def endpoint(self) -> Endpoint:
        """Where the planner listens that is spoken to."""
        return self._endpoints[self._turn]

    @contextmanager
    def current(self, credentials: Credentials = _NONE) -> Iterator[Connection | None]:
        """Hold the connection to the planner that is spoken to while a call begins; None: all are closed for good.

        It is not closed meanwhile: gRPC crashes the process where a call is prepared on a channel that is closed.

        Parameters
        ----------
        credentials
            What to connect with.
        """
        with self._guard():
            yield None if self._closed else self._connection(self.endpoint, credentials)

    @contextmanager
    def all(self, credentials: Credentials = _NONE) -> Iterator[list[Connection]]:
        """Like `current`, the connections to all planners, the preferred one's first; none once they are closed."""
        with self._guard():
            yield [] if self._closed else [self._connection(endpoint, credentials) for endpoint in self._endpoints]

    @contextmanager
    def preferred_if_due(self, credentials: Credentials = _NONE) -> Iterator[Connection | None]:
        """Like `current`, the connection to the preferred planner, if another is spoken to and it is time to ask.

        Whoever gets one says with `returned` what came of it.
        """
        with self._guard():
            due = self._turn and not self._asking and not self._closed and self._clock() >= self._return_at
            self._asking = self._asking or bool(due)
            yield self._connection(self._endpoints[0], credentials) if due else None

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
            _close_elsewhere(connection.channel)

    def watch(self, connection: Connection, call: grpc.RpcContext) -> None:
        """Take note when a call ends that was counted in `Connection.under_way` while the connection was held.

        Not to be called while one is held: of a call that has ended already, note is taken here.
        """
        if not call.add_callback(partial(self._ended, connection)):
            self._ended(connection)

    def _ended(self, connection: Connection) -> None:
        with self._guard():
            connection.under_way -= 1
            if connection.under_way or connection not in self._outdated:
                return
            self._outdated.remove(connection)
        _close_elsewhere(connection.channel)

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
            outdated = [other for other in self._outdated if other.endpoint == connection.endpoint]
            self._outdated = [other for other in self._outdated if other not in outdated]
            for each in (connection, *outdated):
                each.left = reason
            if connection.endpoint == self.endpoint:
                self._take((self._turn + 1) % len(self._endpoints))
        for each in (connection, *outdated):
            each.channel.close()
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
            left = [*self._open.values(), *self._outdated]
            self._open.clear()
            self._outdated.clear()
        for connection in left:
            connection.channel.close()

    def _guard(self) -> threading.Lock:
        """Return the lock of this process; a forked one starts afresh, whatever its parent's threads were doing."""
        pid = os.getpid()
        if self._pid != pid:
            self._lock = threading.Lock()
            _INHERITED.extend(connection.channel for connection in (*self._open.values(), *self._outdated))
            self._open, self._outdated = {}, []
            self._asking = False
            self._pid = pid
        return self._lock

    def _connection(self, endpoint: Endpoint, credentials: Credentials) -> Connection:
        tls = None if endpoint.unix else credentials.tls
        known = self._open.get(endpoint)
        if known is not None and known.tls == tls:
            return known
        if known is not None and known.under_way:
            self._outdated.append(known)
        elif known is not None:
            _close_elsewhere(known.channel)
        channel = credentials.channel(endpoint, CHANNEL_OPTIONS)
        self._open[endpoint] = made = Connection(endpoint=endpoint, channel=channel, tls=tls)
        return made

    def _take(self, turn: int) -> None:
        if self._turn == 0:
            self._return_at = self._clock() + self._returning.next_delay_s()
        self._turn = turn


def _close_elsewhere(channel: grpc.Channel) -> None:
    """Close a channel on a thread that is not one of its own, as closing waits for these.

    gRPC tells of answers, and of the end of calls, on the channel's threads.
    """
    threading.Thread(target=channel.close, name="close", daemon=True).start()
