"""Who a call is from: found before the call is answered, and known to all that runs on its behalf."""

from __future__ import annotations

import enum
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final


class Role(enum.StrEnum):
    """What a caller is; a caller may be several."""

    TRAINER = "trainer"
    """Registers jobs, submits batches, takes schedules, reports, and closes and reads its own jobs."""
    VIEWER = "viewer"
    """Reads jobs and plans, and changes nothing."""
    OPERATOR = "operator"
    """May call everything."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Caller:
    """Whom a call is from.

    Parameters
    ----------
    name
        Tells callers apart in limits and logs: ``token:NAME``, ``certificate:NAME``, ``address:HOST`` or ``unix``.
        Never a secret.
    roles
        What the caller is.
    jobs
        Names of the jobs that it may touch; one that ends with ``*`` stands for all that begin so.
    token_digest
        SHA-256 of the token that the caller brought; empty where it brought none.
    """

    name: str
    roles: frozenset[Role]
    jobs: tuple[str, ...]
    token_digest: bytes = field(default=b"", repr=False)

    def may_touch(self, job_id: str) -> bool:
        """Whether the job is one of the caller's."""
        return any(
            job_id.startswith(pattern[:-1]) if pattern.endswith("*") else job_id == pattern for pattern in self.jobs
        )


ANYONE: Final = Caller(name="anyone", roles=frozenset({Role.OPERATOR}), jobs=("*",))
"""Who calls where nobody is told apart."""

_current: ContextVar[Caller] = ContextVar("caller", default=ANYONE)


def current_caller() -> Caller:
    """Return whom the call is from that is being answered."""
    return _current.get()


def set_caller(caller: Caller) -> None:
    """Say whom the call is from that this task answers."""
    _current.set(caller)
