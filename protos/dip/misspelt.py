"""Finds variables of the environment that nobody reads, and that look like one that somebody does.

A misspelt setting is otherwise an unset one: without certificates, for example, where certificates were meant. Planner
and agents often share an environment, so one list of names serves both; a test holds it to what they read.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PREFIX: Final = "DIP_"

NAMES: Final = tuple(
    PREFIX + name
    for name in (
        # the planner
        *("LISTEN", "HEALTH_LISTEN", "METRICS_LISTEN", "SOCKET_MODE"),
        *("TLS_CERT_FILE", "TLS_KEY_FILE", "TLS_CLIENT_CA_FILE", "ACCESS_FILE", "ALLOW_INSECURE"),
        *("STORE", "STORE_PASSWORD_FILE", "LEASE_MS", "PLAN_JOBS", "SEARCH_WORKERS"),
        *("KEPT_ITERATIONS", "KEPT_BYTES", "IDLE_JOB_S", "KEPT_CLOSED_JOBS"),
        *("MAX_JOBS", "MAX_STREAMS", "MAX_QUEUED_BATCHES", "MAX_QUEUED_BYTES", "MAX_STORE_BYTES"),
        *("MAX_MESSAGE_BYTES", "MAX_BUDGET_MS"),
        *("MAX_CLIENT_JOBS", "MAX_CLIENT_STREAMS", "MAX_CLIENT_CALLS", "MAX_CLIENT_BYTES"),
        *("SOLVE_GRACE_MS", "WORKER_MEMORY_BYTES", "DRAIN_MS", "LOG_LEVEL", "LOG_FORMAT"),
        # its clients
        *("PLANNER_ENDPOINT", "TLS_CA_FILE", "CLIENT_CERT_FILE", "CLIENT_KEY_FILE", "TOKEN_FILE"),
        *("JOB_ID", "STEP_TIMEOUT_S", "SCHEDULE_WAIT_MS", "CONNECT_WAIT_S"),
    )
)
"""Every setting of planners and of their clients."""

_OF_A_KUBERNETES_SERVICE = re.compile(r".*_(SERVICE_(HOST|PORT)|PORT$|PORT_[0-9]+_).*")
"""What the kubelet makes of a Service's name, ``dip-planner`` for example."""

_ALIKE = 0.7
"""From which likeness on (0 to 1, of difflib) a name is taken for a slip of another."""


def misspelt(variables: Iterable[str]) -> Iterator[str]:
    """Yield a line for each variable that is no setting but is much like one.

    Parameters
    ----------
    variables
        The names that are set.
    """
    for name in sorted(variables):
        if name.startswith(PREFIX) and name.upper() not in NAMES and not _OF_A_KUBERNETES_SERVICE.fullmatch(name):
            meant = _meant(name.removeprefix(PREFIX))
            if meant is not None:
                yield f"{name}: is set, but there is no such setting; is {PREFIX}{meant} meant?"


def _meant(name: str) -> str | None:
    """Return the setting that is most like this name: by its letters, or else by its words."""
    known = [each.removeprefix(PREFIX) for each in NAMES]
    if alike := difflib.get_close_matches(name.upper(), known, n=1, cutoff=_ALIKE):
        return alike[0]
    words = set(name.upper().split("_"))
    shared = [each for each in known if words < set(each.split("_")) or words > set(each.split("_"))]
    return min(shared, key=len, default=None)
