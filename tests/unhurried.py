"""The agent without its limits of time, for tests of what it does on a machine that may be busy."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from waiting import PATIENCE_S

from trainer_agent import client, connections, planner_link, startup
from trainer_agent.client import PlannerClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LONGEST_WAIT_S = 5.0
_OPTIONS = connections.CHANNEL_OPTIONS
_CALLS = (
    PlannerClient.register_job,
    PlannerClient.submit_batch,
    PlannerClient.report_execution,
    PlannerClient.get_job,
)
_NO_SOONER = (
    "grpc.keepalive_time_ms",
    "grpc.keepalive_timeout_ms",
    "grpc.http2.ping_timeout_ms",
    "grpc.min_reconnect_backoff_ms",  # what a connection may take, too
)


def unhurry(put: Callable[[object, str, object], None] = setattr) -> None:
    """Let calls that are answered, connections that stand or are made, and threads that end, take what they take.

    Parameters
    ----------
    put
        Sets an attribute: pytest's ``monkeypatch.setattr``; for a whole process the one of Python.
    """
    options = ((name, int(PATIENCE_S * 1000) if name in _NO_SOONER else held) for name, held in _OPTIONS)
    put(connections, "CHANNEL_OPTIONS", tuple(options))
    put(client, "CALL_TIMEOUT_S", PATIENCE_S)
    put(startup, "REGISTER_TIMEOUT_S", PATIENCE_S)
    put(planner_link, "JOIN_S", PATIENCE_S)
    for call in _CALLS:
        put(call, "__kwdefaults__", call.__kwdefaults__ | {"timeout_s": PATIENCE_S})


def waits_s() -> Iterator[float]:
    """Yield how long iterations wait that go by until something comes about, as long as a test is patient.

    Shortly at first; longer and longer, as a busy machine may take longer than any wait that stays the same.
    """
    deadline, wait_s = time.monotonic() + PATIENCE_S, 0.02
    while time.monotonic() < deadline:
        yield wait_s
        wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
