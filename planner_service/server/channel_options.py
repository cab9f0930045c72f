"""What the server's transport allows, each option for a reason."""

from __future__ import annotations

from typing import Final

HEALTH_MESSAGE_BYTES: Final = 2**16
"""Largest message where nothing but health is served."""

LEAST_PING_INTERVAL_MS: Final = 1_000
"""A client may ping this often on an idle stream; agents do every 10 s, gRPC's default forbids less than 5 minutes."""

GREETING_MS: Final = 10_000
"""How long a client that has connected may take to say that it speaks TLS and HTTP/2."""

IDLE_MS: Final = 300_000
"""How long a connection without a call stays; clients connect again by themselves when they have one."""

CALLS_A_CONNECTION: Final = 1024
"""Calls and streams of one connection, also those that were given up and are not cleared away yet; further ones wait at
the client, or end with UNAVAILABLE. An agent has two or three."""

HEALTH_CONNECTIONS: Final = 256
"""Connections where nothing but health is served."""

_WAITING_CALLS: Final = 10_000
_DEAD_CLIENT_PING_MS: Final = 60_000
_DEAD_CLIENT_TIMEOUT_MS: Final = 20_000


def server_options(*, max_message_bytes: int, max_connections: int) -> list[tuple[str, int]]:
    """Options of a gRPC server.

    Parameters
    ----------
    max_message_bytes
        Both ways. gRPC's default of 4 MiB is less than what GetPlan answers for 16 ranks and 128 microbatches.
    max_connections
        At once; others are hung up on. Where the files ran out that the process may have open, nothing else would find
        one any more.
    """
    return [
        # Two planners on one port would share its connections, and neither would say so.
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_send_message_length", max_message_bytes),
        # A client that sends fast has the probe grant it a larger window on each stream: megabytes that nobody has
        # asked to read. Without it, what is not read yet is bounded by 64 KiB a stream; a request that is read gets
        # the window that it needs.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.max_allowed_incoming_connections", max_connections),
        ("grpc.max_concurrent_streams", CALLS_A_CONNECTION),
        # Of more calls than these that wait for Python to look at them, gRPC cancels some at random, whosever they are,
        # and of twice as many each new one.
        ("grpc.server.max_pending_requests", _WAITING_CALLS),
        ("grpc.server.max_pending_requests_hard_limit", 2 * _WAITING_CALLS),
        # Who connects and says nothing, or a byte now and then: until TLS stands, and until HTTP/2 does.
        ("grpc.server_handshake_timeout_ms", GREETING_MS),
        ("grpc.http2.settings_timeout", GREETING_MS),
        # Who says nothing afterwards, or begins headers that never end.
        ("grpc.max_connection_idle_ms", IDLE_MS),
        ("grpc.http2.min_ping_interval_without_data_ms", LEAST_PING_INTERVAL_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        # A node that vanished without a word leaves its streams behind; find out within 80 s.
        ("grpc.keepalive_time_ms", _DEAD_CLIENT_PING_MS),
        ("grpc.keepalive_timeout_ms", _DEAD_CLIENT_TIMEOUT_MS),
        # An unanswered ping has a time limit of its own, a minute where it is not set.
        ("grpc.http2.ping_timeout_ms", _DEAD_CLIENT_TIMEOUT_MS),
    ]
