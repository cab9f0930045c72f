"""What the agent reads from the environment, and nothing else reads there.

Everywhere the same precedence: an argument of the program, else the variable of the environment, else the default. An
empty variable is an unset one. `VARIABLES` lists them all, with their meaning.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dip.connecting import VARIABLES as CONNECTING
from dip.connecting import ClientFiles, Endpoints, Variable
from dip.connecting.variables import PLANNER_ENDPOINT as PLANNER_ENDPOINT
from dip.misspelt import misspelt
from dip.validation import JOB_ID_RULE, is_job_id
from dip.validation.limits import MAX_JOB_ID_LENGTH

from trainer_agent import about

if TYPE_CHECKING:
    from collections.abc import Mapping

_log = about.logger(__name__)

JOB_ID: Final = "DIP_JOB_ID"
STEP_TIMEOUT_S: Final = "DIP_STEP_TIMEOUT_S"
SCHEDULE_WAIT_MS: Final = "DIP_SCHEDULE_WAIT_MS"
CONNECT_WAIT_S: Final = "DIP_CONNECT_WAIT_S"
TORCHRUN_RUN_ID: Final = "TORCHELASTIC_RUN_ID"

DEFAULT_STEP_TIMEOUT_S: Final = 300.0
DEFAULT_SCHEDULE_WAIT_MS: Final = 200
DEFAULT_CONNECT_WAIT_S: Final = 5.0

VARIABLES: Final = (
    *CONNECTING,
    Variable(
        name=JOB_ID,
        default="derived",
        meaning=f"The job's name at the planner: {JOB_ID_RULE}. Default: the id of the torchrun run where it has one "
        f"(`{TORCHRUN_RUN_ID}`), so that its restarts stay one job; else a name of this start alone, so that no two "
        "trainings ever disturb each other.",
    ),
    Variable(
        name=STEP_TIMEOUT_S,
        default=f"{DEFAULT_STEP_TIMEOUT_S:g}",
        meaning="How long any wait for another rank may take before the step fails, in seconds; above 0.",
    ),
    Variable(
        name=SCHEDULE_WAIT_MS,
        default=f"{DEFAULT_SCHEDULE_WAIT_MS}",
        meaning="How long an iteration may wait for its schedule before it runs the fallback, in whole milliseconds; "
        "0: not at all.",
    ),
    Variable(
        name=CONNECT_WAIT_S,
        default=f"{DEFAULT_CONNECT_WAIT_S:g}",
        meaning="How long the start waits for a planner that does not answer, in seconds; 0: not at all.",
    ),
)
"""Every variable that an agent reads, those that it shares with the commands first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentSettings:
    """How an agent reaches its planner and how long it waits.

    Parameters
    ----------
    endpoints
        Where the planner listens, or the planners of one store. None: no planner, the fixed fallback schedule in every
        iteration.
    files
        What it connects with: authorities, its own certificate, a token.
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
    files: ClientFiles = field(default_factory=ClientFiles)
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
        if self.job_id is not None:
            _check_job_id("job_id", self.job_id)
        if self.endpoints is not None:
            self.files.check(self.endpoints)

    @classmethod
    def from_environment(
        cls,
        environ: Mapping[str, str] | None = None,
        *,
        endpoints: str | None = None,
        files: ClientFiles | None = None,
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
        endpoints, files, job_id, step_timeout_s, schedule_wait_ms, connect_wait_s
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
            files=ClientFiles.from_environment(environ) if files is None else files,
            job_id=job_id or _job_id(environ),
            step_timeout_s=step_timeout_s,
            schedule_wait_ms=schedule_wait_ms,
            connect_wait_s=connect_wait_s,
        )


def warn_of_misspelt_settings(environ: Mapping[str, str] | None = None) -> None:
    """Log a warning for each variable that is read nowhere and looks like one of planners or agents.

    Parameters
    ----------
    environ
        The variables; those of this process where not given.
    """
    for slip in misspelt(os.environ if environ is None else environ):
        _log.warning("%s", slip)


def _endpoints(text: str | None) -> Endpoints | None:
    if not text:
        return None
    try:
        return Endpoints.parse(text)
    except ValueError as error:
        raise ValueError(f"{PLANNER_ENDPOINT}: {error}, or unset for training without a planner") from None


def _job_id(environ: Mapping[str, str]) -> str | None:
    named, run = environ.get(JOB_ID, ""), environ.get(TORCHRUN_RUN_ID, "")
    if named:
        return _check_job_id(JOB_ID, named)
    if run in ("", "none"):
        return None
    return _check_job_id(TORCHRUN_RUN_ID, run, f", or set {JOB_ID} to such a name")


def _check_job_id(where: str, name: str, advice: str = "") -> str:
    """Return the name; refuse it here, where it is set, as the planner would refuse it in every call."""
    if not is_job_id(name):
        raise ValueError(f"{where}: {name[:MAX_JOB_ID_LENGTH]!r}; must be {JOB_ID_RULE}{advice}")
    return name


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
