"""What a call's error means to people: what is wrong, and what to check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import grpc
from dip.connecting.variables import CA_FILE, CERT_FILE, PLANNER_ENDPOINT, TOKEN_FILE

if TYPE_CHECKING:
    from dip.connecting import ClientFiles, Endpoint


class WatchError(Exception):
    """A question that has no answer; one readable text."""


class AwayError(WatchError):
    """No planner answers; later one may."""


class NotAllowedError(WatchError):
    """The planner does not tell this caller."""


class NoSuchJobError(WatchError):
    """The planner does not know the job."""


class BadQuestionError(WatchError):
    """The planner refuses the question itself."""


_WITH_TLS: Final[tuple[tuple[str, str], ...]] = (
    ("WRONG_VERSION_NUMBER", f"it speaks no TLS, which {CA_FILE} or {CERT_FILE} asks for"),
    (
        "CERTIFICATE_VERIFY_FAILED",
        f"its certificate is not from the authorities in {CA_FILE}, or is not valid any more",
    ),
    ("Hostname Verification", "its certificate names another host than the endpoint does"),
    ("Socket closed", f"it closed the connection: it may ask for a client's certificate ({CERT_FILE})"),
)
_WITHOUT_TLS: Final[tuple[tuple[str, str], ...]] = (
    ("Socket closed", f"it closed the connection: it may speak TLS only ({CA_FILE} says whom to trust)"),
    ("reset by peer", f"it closed the connection: it may speak TLS only ({CA_FILE} says whom to trust)"),
)
_EITHER: Final[tuple[tuple[str, str], ...]] = (
    ("Connection refused", "nothing listens there"),
    ("No such file", "there is no such socket"),
    ("Permission denied", "the socket's permissions do not let this user in"),
    ("lookup", "there is no host of this name"),
    ("http1.x", "it speaks HTTP/1, so it is no planner"),
)
_AWAY: Final = frozenset(
    (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED)
)


def failure(error: grpc.Call, endpoint: Endpoint, files: ClientFiles) -> WatchError:
    """Return what a call's error means.

    Parameters
    ----------
    error
        What the call ended with.
    endpoint
        Whom was asked.
    files
        What the connection was made with.
    """
    code = error.code()
    details: str = error.details() or "no reason given"
    match code:
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return AwayError(f"the planner at {endpoint} does not answer")
        case grpc.StatusCode.NOT_FOUND:
            return NoSuchJobError(details)
        case grpc.StatusCode.INVALID_ARGUMENT | grpc.StatusCode.OUT_OF_RANGE:
            return BadQuestionError(details)
        case grpc.StatusCode.UNAUTHENTICATED:
            return NotAllowedError(f"the planner at {endpoint} asks who calls ({TOKEN_FILE}): {details}")
        case grpc.StatusCode.PERMISSION_DENIED:
            return NotAllowedError(f"the planner at {endpoint} does not tell this caller: {details}")
        case grpc.StatusCode.UNIMPLEMENTED:
            return NotAllowedError(f"what listens at {endpoint} is no planner, or a much older one: {details}")
    if code in _AWAY:
        return AwayError(f"the planner at {endpoint} is away: {_cause(details, endpoint, files)}")
    return WatchError(f"the planner at {endpoint} failed ({code.name}): {details}")


def unreachable(tried: list[AwayError]) -> AwayError:
    """Return what it means that no planner of a list answers."""
    listed = "\n".join(f"  {error}" for error in tried) if len(tried) > 1 else str(tried[0])
    first = "no planner answers:\n" if len(tried) > 1 else ""
    return AwayError(
        f"{first}{listed}\n"
        f"Check that `dip serve` runs there, and that --endpoint, or {PLANNER_ENDPOINT}, names its DIP_LISTEN."
    )


def _cause(details: str, endpoint: Endpoint, files: ClientFiles) -> str:
    over_tls = files.tls and not endpoint.unix
    for sign, meaning in (*(_WITH_TLS if over_tls else _WITHOUT_TLS), *_EITHER):
        if sign in details:
            return meaning
    return details
