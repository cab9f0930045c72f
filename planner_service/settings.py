"""Every setting of the planner's service: its name in the environment, its default, what is allowed.

Precedence, highest first: an argument (`dip serve --listen ...`, `Settings(listen=...)`), the environment,
the default written here. Nothing else in the planner reads the environment.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final, Literal

from dip.addresses import check_host, check_socket_path
from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

PREFIX: Final = "DIP_"
LISTEN: Final = "DIP_LISTEN"
SOCKET_MODE: Final = "DIP_SOCKET_MODE"
HEALTH_LISTEN: Final = "DIP_HEALTH_LISTEN"
METRICS_LISTEN: Final = "DIP_METRICS_LISTEN"
TLS_CERT_FILE: Final = "DIP_TLS_CERT_FILE"
TLS_KEY_FILE: Final = "DIP_TLS_KEY_FILE"
TLS_CLIENT_CA_FILE: Final = "DIP_TLS_CLIENT_CA_FILE"
ACCESS_FILE: Final = "DIP_ACCESS_FILE"
ALLOW_INSECURE: Final = "DIP_ALLOW_INSECURE"
STORE: Final = "DIP_STORE"
STORE_PASSWORD_FILE: Final = "DIP_STORE_PASSWORD_FILE"
SEARCH_WORKERS: Final = "DIP_SEARCH_WORKERS"
LEASE_MS: Final = "DIP_LEASE_MS"
PLAN_JOBS: Final = "DIP_PLAN_JOBS"
KEPT_ITERATIONS: Final = "DIP_KEPT_ITERATIONS"
KEPT_BYTES: Final = "DIP_KEPT_BYTES"
IDLE_JOB_S: Final = "DIP_IDLE_JOB_S"
KEPT_CLOSED_JOBS: Final = "DIP_KEPT_CLOSED_JOBS"
MAX_JOBS: Final = "DIP_MAX_JOBS"
MAX_STREAMS: Final = "DIP_MAX_STREAMS"
MAX_QUEUED_BATCHES: Final = "DIP_MAX_QUEUED_BATCHES"
MAX_CLIENT_JOBS: Final = "DIP_MAX_CLIENT_JOBS"
MAX_CLIENT_STREAMS: Final = "DIP_MAX_CLIENT_STREAMS"
MAX_CLIENT_CALLS: Final = "DIP_MAX_CLIENT_CALLS"
MAX_CLIENT_BYTES: Final = "DIP_MAX_CLIENT_BYTES"
MAX_QUEUED_BYTES: Final = "DIP_MAX_QUEUED_BYTES"
MAX_STORE_BYTES: Final = "DIP_MAX_STORE_BYTES"
MAX_MESSAGE_BYTES: Final = "DIP_MAX_MESSAGE_BYTES"
MAX_BUDGET_MS: Final = "DIP_MAX_BUDGET_MS"
SOLVE_GRACE_MS: Final = "DIP_SOLVE_GRACE_MS"
WORKER_MEMORY_BYTES: Final = "DIP_WORKER_MEMORY_BYTES"
DRAIN_MS: Final = "DIP_DRAIN_MS"
LOG_LEVEL: Final = "DIP_LOG_LEVEL"
LOG_FORMAT: Final = "DIP_LOG_FORMAT"

METRICS_OFF: Final = "off"
"""What the metrics' address says where they are left out."""

_REDIS = re.compile(r"rediss?://[^/?#\s]+(/[0-9]*)?(\?[^#\s]*)?")
_ADDRESS = re.compile(r"unix://(?P<path>/.+)|(?P<host>\[[0-9a-fA-F:]+\]|[^:/\[\]]+):(?P<port>[0-9]{1,5})")

_ALLOWED: Final = {
    "bool_parsing": "allowed are true and false",
    "int_parsing": "allowed is a whole number",
    "string_pattern_mismatch": "allowed are three octal digits, such as 0660",
}
"""What pydantic says otherwise, by its type of error; the mode of a socket is the only pattern."""


class SettingsError(ValueError):
    """A setting that cannot be used; one line a setting, naming it, what it held and what is allowed."""


class Settings(BaseSettings):
    """What `dip serve` runs with; the defaults need no configuration.

    Raises
    ------
    pydantic.ValidationError
        Where a value is not allowed. `load_settings` turns it into readable lines.
    """

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, env_ignore_empty=True)

    listen: str = Field(
        default="127.0.0.1:50061",
        description="Where trainers reach the planner: host:port (port 0 takes a free one) or unix:///path.",
    )
    health_listen: str = Field(
        default="127.0.0.1:50062",
        description="Where orchestrators ask for its health; it answers on the main address too.",
    )
    metrics_listen: str = Field(
        default="127.0.0.1:9464",
        description="Where Prometheus reads its metrics, over HTTP: host:port; off leaves them out.",
    )
    socket_mode: str = Field(
        default="0600",
        pattern="^0?[0-7]{3}$",
        description="File permissions of a UNIX socket that it listens on, octal: who may write to it may call.",
    )
    tls_cert_file: Path | None = Field(
        default=None,
        description="Certificate chain (PEM) that the planner shows to trainers; read again when it changes.",
    )
    tls_key_file: Path | None = Field(default=None, description="The certificate's private key (PEM).")
    tls_client_ca_file: Path | None = Field(
        default=None,
        description="Authorities (PEM) of clients: with it, only who shows a certificate of theirs may call (mTLS).",
    )
    access_file: Path | None = Field(
        default=None,
        description="Who may call (TOML): digests of bearer tokens, each with its roles and jobs; read again when it "
        "changes. With it, calls without a token are turned away.",
    )
    allow_insecure: bool = Field(
        default=False,
        description="Listen beyond this machine without TLS or without knowing who calls: where the network, or a "
        "service mesh, sees to both.",
    )
    store: str = Field(
        default="memory://",
        repr=False,
        description="Where jobs and plans are kept: memory://, or redis://[user:password@]host:port/database (with TLS "
        "rediss://), which planners share.",
    )
    store_password_file: Path | None = Field(
        default=None,
        description="File with the password of the Redis in DIP_STORE, in place of one there; read again for each "
        "connection.",
    )
    lease_ms: int = Field(
        default=3_000,
        ge=100,
        le=600_000,
        description="How long planners that share a store wait for one that says nothing before they take its batches.",
    )
    plan_jobs: Literal["all", "own"] = Field(
        default="all",
        description="Whose batches it plans, of a shared store: all, or own: those of jobs whose trainers talk to it.",
    )
    search_workers: int = Field(
        default=0, ge=0, le=1024, description="Solver processes. 0: half of the cores that the planner may use."
    )
    kept_iterations: int = Field(
        default=32, ge=1, le=100_000, description="Planned iterations kept for each replica; older ones are dropped."
    )
    kept_bytes: int = Field(
        default=128 * 2**20,
        ge=2**20,
        description="What plans of a job may take in the store, shared out among its replicas, and reports a quarter "
        "of it besides; older ones are dropped.",
    )
    idle_job_s: int = Field(
        default=7 * 24 * 3600, ge=60, description="Seconds after which a job is forgotten that nobody writes to."
    )
    kept_closed_jobs: int = Field(
        default=8, ge=0, le=10_000, description="Closed jobs that stay readable; older ones are forgotten."
    )
    max_jobs: int = Field(default=256, ge=1, description="Open jobs; one more gets RESOURCE_EXHAUSTED.")
    max_streams: int = Field(default=4096, ge=1, description="Open streams; one more gets RESOURCE_EXHAUSTED.")
    max_queued_batches: int = Field(
        default=32, ge=1, description="Batches of a replica that wait for a plan; one more gets RESOURCE_EXHAUSTED."
    )
    max_client_jobs: int = Field(
        default=128, ge=1, description="Open jobs of one client; one more gets RESOURCE_EXHAUSTED."
    )
    max_client_streams: int = Field(
        default=2048, ge=1, description="Open streams of one client; one more gets RESOURCE_EXHAUSTED."
    )
    max_client_calls: int = Field(
        default=4096,
        ge=1,
        description="Calls of one client under way, its streams aside; one more gets RESOURCE_EXHAUSTED.",
    )
    max_client_bytes: int = Field(
        default=64 * 2**20,
        ge=2**20,
        description="What answers may take that one client has not read yet; one more gets RESOURCE_EXHAUSTED.",
    )
    max_queued_bytes: int = Field(
        default=256 * 2**20,
        ge=2**20,
        description="What batches of a job that wait for a plan may take; one more gets RESOURCE_EXHAUSTED.",
    )
    max_store_bytes: int = Field(
        default=4 * 2**30,
        ge=2**26,
        description="What jobs, batches, plans and reports may take in memory:// together, half of it of one client's "
        "jobs; more gets RESOURCE_EXHAUSTED, and a plan a reason in its place. A Redis has its own maxmemory.",
    )
    max_message_bytes: int = Field(
        default=64 * 2**20, ge=4 * 2**20, le=2**31 - 1, description="Largest request taken and largest answer given."
    )
    max_budget_ms: int = Field(default=60_000, ge=1, description="Longest search, whoever chooses its time.")
    solve_grace_ms: int = Field(
        default=2_000, ge=10, description="What a solve may overrun its budget by before its process is killed."
    )
    worker_memory_bytes: int = Field(
        default=4 * 2**30, ge=2**28, description="Data that one solver process may hold (RLIMIT_DATA)."
    )
    drain_ms: int = Field(default=5_000, ge=0, description="How long a stopping planner waits for calls to end.")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(default="INFO", description="Least level logged.")
    log_format: Literal["text", "json"] = Field(
        default="text", description="Lines for people, or one JSON object a line for collectors."
    )

    @field_validator("listen", "health_listen")
    @classmethod
    def _is_an_address(cls, value: str) -> str:
        match = _ADDRESS.fullmatch(value)
        if match is None or int(match["port"] or 0) > 65_535:
            raise ValueError("allowed are host:port with a port of 0 to 65535, and unix:///absolute/path")
        if match["path"]:
            check_socket_path(match["path"])
        else:
            _check_host(match["host"])
        return value

    @field_validator("metrics_listen")
    @classmethod
    def _is_an_http_address(cls, value: str) -> str:
        match = _ADDRESS.fullmatch(value)
        if value != METRICS_OFF and (match is None or match["path"] or int(match["port"]) > 65_535):
            raise ValueError("allowed are host:port with a port of 0 to 65535, and off")
        if match is not None:
            _check_host(match["host"])
        return value

    @field_validator("store")
    @classmethod
    def _is_a_known_store(cls, value: str) -> str:
        if value != "memory://" and not _REDIS.fullmatch(value):
            raise ValueError("allowed are memory:// and redis://host:port/database, rediss://host:port/database")
        return value


def _check_host(host: str) -> None:
    """Refuse what can be no host; what stands in brackets is an IPv6 address, which the resolver judges."""
    if not host.startswith("["):
        check_host(host)


def load_settings(**arguments: Any) -> Settings:
    """Read the settings: arguments that are not None, then the environment, then the defaults.

    Raises
    ------
    SettingsError
        With one line for each setting that cannot be used.
    """
    try:
        return Settings(**{name: value for name, value in arguments.items() if value is not None})
    except ValidationError as error:
        raise SettingsError("\n".join(_line(problem) for problem in error.errors())) from error


def _line(problem: Any) -> str:
    name = PREFIX + str(problem["loc"][0]).removeprefix(PREFIX.lower()).upper()
    said = _ALLOWED.get(problem["type"], problem["msg"].removeprefix("Value error, "))
    held = problem["input"]
    if name == STORE:  # whatever it holds instead of an address may be a password
        scheme, found, _ = str(held).partition("://")
        held = f"{scheme}://***" if found and scheme.isalpha() else "***"
    return f"{name}: holds {held!r}; {said[0].lower()}{said[1:]}"
