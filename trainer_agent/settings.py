"""What the agent reads from the environment, and nothing else reads there.

Everywhere the same precedence: an argument of the program, else the variable of the environment, else the default. An
empty variable is an unset one.

========================== ============ ==============================================================================
variable                   default      meaning
========================== ============ ==============================================================================
``DIP_PLANNER_ENDPOINT``   unset        ``host:port`` or ``unix:///path`` of the planner; or of several that share a
                                        store, separated by commas: the first is preferred, the others stand in for
                                        it. Unset: every iteration runs the fixed fallback schedule
``DIP_JOB_ID``             derived      the job's name at the planner. Default: the id of the torchrun run where it has
                                        one (``TORCHELASTIC_RUN_ID``), so that its restarts stay one job; else a name
                                        of this start alone, so that no two trainings ever disturb each other
``DIP_STEP_TIMEOUT_S``     300          how long any wait for another rank may take before the step fails
``DIP_SCHEDULE_WAIT_MS``   200          how long an iteration may wait for its schedule before it runs the fallback
``DIP_CONNECT_WAIT_S``     5            how long the start waits for a planner that does not answer
========================== ============ ==============================================================================
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dip.connecting import Endpoints

if TYPE_CHECKING:
    from collections.abc import Mapping

PLANNER_ENDPOINT = "DIP_PLANNER_ENDPOINT"
JOB_ID = "DIP_JOB_ID"
STEP_TIMEOUT_S = "DIP_STEP_TIMEOUT_S"
SCHEDULE_WAIT_MS = "DIP_SCHEDULE_WAIT_MS"
CONNECT_WAIT_S = "DIP_CONNECT_WAIT_S"
TORCHRUN_RUN_ID = "TORCHELASTIC_RUN_ID"

DEFAULT_STEP_TIMEOUT_S = 300.0
DEFAULT_SCHEDULE_WAIT_MS = 200
DEFAULT_CONNECT_WAIT_S = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentSettings:
    """How an agent reaches its planner and how long it waits.

    Parameters
    ----------
    endpoints
        Where the planner listens, or the planners of one store. None: no planner, the fixed fallback schedule in every
        iteration.
    job_id
        The job's name at the planner. None: drawn at the start, one of this attempt alone.
    step_timeout_s
        How long any wait for another rank may take: what `Mesh.create` gets.
    schedule_wait_ms
        How long an iteration may wait for its schedule. 0: not at all.
    connect_wait_s
        How long the start waits for a planner that does not answer. 0: not at all.
    """

    endpoints: Endpoints | None = None
    job_id: str | None = None
    step_timeout_s: float = DEFAULT_STEP_TIMEOUT_S
    schedule_wait_ms: int = DEFAULT_SCHEDULE_WAIT_MS
    connect_wait_s: float = DEFAULT_CONNECT_WAIT_S

    def __post_init__(self) -> None:
        if not 0 < self.step_timeout_s < float("inf"):
            raise ValueError(f"step_timeout_s: {self.step_timeout_s}; must be above 0, in seconds")
        if self.schedule_wait_ms < 0:
            raise ValueError(f"schedule_wait_ms: {self.schedule_wait_ms}; must be 0 or more, in milliseconds")
        if not 0 <= self.connect_wait_s < float("inf"):
            raise ValueError(f"connect_wait_s: {self.connect_wait_s}; must be 0 or more, in seconds")

    @classmethod
    def from_environment(
        cls,
        environ: Mapping[str, str] | None = None,
        *,
        endpoints: str | None = None,
        job_id: str | None = None,
        step_timeout_s: float | None = None,
        schedule_wait_ms: int | None = None,
        connect_wait_s: float | None = None,
    ) -> AgentSettings:
        """Read the variables; arguments that are given win over them.

        Parameters
        ----------
        environ
            The variables; those of this process where not given.
        endpoints, job_id, step_timeout_s, schedule_wait_ms, connect_wait_s
            As in the class, the endpoints as text.

        Raises
        ------
        ValueError
            A value is not what is allowed; the message names the variable, what it held and what is allowed.
        """
        environ = os.environ if environ is None else environ
        if endpoints is None:
            endpoints = environ.get(PLANNER_ENDPOINT)
        if step_timeout_s is None:
            step_timeout_s = _number(
                environ, STEP_TIMEOUT_S, DEFAULT_STEP_TIMEOUT_S, "seconds, above 0", above_zero=True
            )
        if schedule_wait_ms is None:
            schedule_wait_ms = _whole(environ, SCHEDULE_WAIT_MS, DEFAULT_SCHEDULE_WAIT_MS)
        if connect_wait_s is None:
            connect_wait_s = _number(environ, CONNECT_WAIT_S, DEFAULT_CONNECT_WAIT_S, "seconds, 0 or more")
        return cls(
            endpoints=_endpoints(endpoints),
            job_id=job_id or environ.get(JOB_ID) or _torchrun_id(environ),
            step_timeout_s=step_timeout_s,
            schedule_wait_ms=schedule_wait_ms,
            connect_wait_s=connect_wait_s,
        )


def _endpoints(text: str | None) -> Endpoints | None:
    if not text:
        return None
    try:
        return Endpoints.parse(text)
    except ValueError as error:
        raise ValueError(f"{PLANNER_ENDPOINT}: {error}, or unset for training without a planner") from None


def _torchrun_id(environ: Mapping[str, str]) -> str | None:
    run = environ.get(TORCHRUN_RUN_ID, "")
    return None if run in ("", "none") else run


def _number(environ: Mapping[str, str], name: str, default: float, allowed: str, *, above_zero: bool = False) -> float:
    text = environ.get(name, "")
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not (value > 0 if above_zero else value >= 0) or value == float("inf"):
        raise ValueError(f"{name}: {text!r}; must be a number of {allowed}")
    return value


def _whole(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{name}: {text!r}; must be a whole number of milliseconds, 0 or more")
    return int(text)
