"""How a command ends that cannot do what it was asked."""

from __future__ import annotations

BAD_INPUT = 2
CANNOT_FIT = 3
UNREACHABLE = 4
NO_SUCH_JOB = 5
NOT_ALLOWED = 6
PLANNER_FAILED = 7


class CommandError(Exception):
    """A readable reason, and the exit code that goes with it."""

    def __init__(self, message: str, exit_code: int = BAD_INPUT) -> None:
        self.exit_code = exit_code
        super().__init__(message)
