"""What a call's error means to people: what is wrong, and what to check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import grpc
from dip.connecting.explaining import explanation
from dip.connecting.variables import PLANNER_ENDPOINT, TOKEN_FILE

from planner_service.watching.words import printable

if TYPE_CHECKING:
    from dip.connecting import ClientFiles, Endpoint
    from dip.connecting.tls import Tls


class WatchError(Exception):
    """A question that has no answer.

    Parameters
    ----------
    message
        Why, in a line or a few.
    hint
        What to check; the error's text has both.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        # What a planner says of itself is shown on a terminal, and must not steer it.
        self.message = "\n".join(map(printable, message.split("\n")))
        self.hint = hint
        super().__init__("\n".join(filter(None, (self.message, hint))))


class AwayError(WatchError):
    """No planner answers; later one may."""


class NotAllowedError(WatchError):
    """The planner does not tell this caller."""


class NoSuchJobError(WatchError):
    """The planner does not know the job."""


class BadQuestionError(WatchError):
    """The planner refuses the question itself."""


_CHECK_WHERE: Final = (
    f"Check that `dip serve` runs there, and that --endpoint, or {PLANNER_ENDPOINT}, names its DIP_LISTEN."
)
_CAUSES: Final = (
    ("Connection refused", "nothing listens there"),
    ("No such file", "there is no such socket"),
    ("Permission denied", "the socket's permissions do not let this user in"),
    ("lookup", "there is no host of this name"),
    ("http1.x", "it speaks HTTP/1, so it is no planner"),
)


def failure(error: grpc.Call, endpoint: Endpoint, files: ClientFiles, tls: Tls | None) -> WatchError:
    """Return what a call's error means.

    Parameters
    ----------
    error
        What the call ended with.
    endpoint
        Whom was asked.
    files, tls
        What the connection was made with.
    """
    code = error.code()
    details: str = error.details() or "no reason given"
    match code:
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return AwayError(f"the planner at {endpoint} does not answer", hint=_CHECK_WHERE)
        case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.RESOURCE_EXHAUSTED:
            known = explanation(details, endpoint, tls)
            where = "" if known else _CHECK_WHERE
            return AwayError(f"the planner at {endpoint} is away: {known or _cause(details)}", hint=where)
        case grpc.StatusCode.NOT_FOUND:
            return NoSuchJobError(details)
        case grpc.StatusCode.INVALID_ARGUMENT | grpc.StatusCode.OUT_OF_RANGE:
            return BadQuestionError(details)
        case grpc.StatusCode.UNAUTHENTICATED | grpc.StatusCode.PERMISSION_DENIED:
            token = (
                f"the token in {files.token_file!r}" if files.token_file else f"no token: {TOKEN_FILE} names its file"
            )
            return NotAllowedError(f"the planner at {endpoint} does not tell this caller ({token}): {details}")
        case grpc.StatusCode.UNIMPLEMENTED:
            what = "is no planner, a much older one, or its health port"
            return WatchError(f"what listens at {endpoint} {what}: {details}")
    return WatchError(f"the planner at {endpoint} failed ({code.name}): {details}")


def unreachable(tried: list[AwayError]) -> AwayError:
    """Return what it means that no planner of a list answers."""
    hints = dict.fromkeys(error.hint for error in tried if error.hint)
    return AwayError("\n".join(error.message for error in tried), hint="\n".join(hints))


def _cause(details: str) -> str:
    return next((meaning for sign, meaning in _CAUSES if sign in details), details)
