"""Why a call is refused, and the rich gRPC status that says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

from dip.errors import FieldViolation, InvalidRequestError
from google.protobuf import any_pb2, duration_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from planner_service.server.telling import tell_refused
from planner_service.store import (
    AttemptOverError,
    QueueBytesError,
    QueueFullError,
    StoreError,
    StoreFullError,
    TooOldError,
)

if TYPE_CHECKING:
    import grpc
    from google.protobuf.message import Message

# A client drops a status whose metadata passes 8 KiB, and with it the reason; both parts travel encoded.
_MESSAGE_CHARACTERS: Final = 1_000
_DETAILS_BYTES: Final = 3_000
_DESCRIPTION_CHARACTERS: Final = 400

_QUEUE_RETRY_MS: Final = 1_000
_STORE_RETRY_MS: Final = 5_000


class RefusalError(Exception):
    """A call that ends with an error.

    Parameters
    ----------
    code
        One of the codes that the contract names, or DEADLINE_EXCEEDED, as a number of google.rpc.Code.
    message
        What is wrong and what to do, for people.
    details
        Messages of google.rpc for programs.
    """

    def __init__(self, code: int, message: str, *details: Message) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details

    async def abort(self, context: grpc.aio.ServicerContext[object, object]) -> NoReturn:
        """End the call with this status, and say so in the log."""
        tell_refused(self.code, _cut(self.message, _MESSAGE_CHARACTERS), peer=context.peer())
        rich = status_pb2.Status(code=self.code, message=_cut(self.message, _MESSAGE_CHARACTERS))
        for detail in self.details:
            packed = any_pb2.Any()
            packed.Pack(detail)
            rich.details.append(packed)
        status = rpc_status.to_status(rich)
        await context.abort(status.code, status.details, tuple(status.trailing_metadata or ()))


def invalid(error: InvalidRequestError) -> RefusalError:
    """INVALID_ARGUMENT with google.rpc.BadRequest, of as many violations as a status can carry."""
    bad_request = error_details_pb2.BadRequest()
    size = 0
    for count, violation in enumerate(error.violations):
        entry = error_details_pb2.BadRequest.FieldViolation(
            field=_cut(violation.field, _DESCRIPTION_CHARACTERS),
            description=_cut(violation.description, _DESCRIPTION_CHARACTERS),
        )
        size += entry.ByteSize()
        if size > _DETAILS_BYTES:
            bad_request.field_violations.add(description=f"and {len(error.violations) - count} more")
            break
        bad_request.field_violations.append(entry)
    more = f" (and {len(error.violations) - 1} more)" if len(error.violations) > 1 else ""
    first = _cut(str(error.violations[0]), _MESSAGE_CHARACTERS - len(more))
    return RefusalError(code_pb2.INVALID_ARGUMENT, first + more, bad_request)


def undecodable(message_type: str) -> RefusalError:
    """INVALID_ARGUMENT for bytes that are no message."""
    violation = FieldViolation(field="", description=f"the request's bytes are no serialized {message_type}")
    return invalid(InvalidRequestError((violation,)))


def not_found(message: str) -> RefusalError:
    """NOT_FOUND."""
    return RefusalError(code_pb2.NOT_FOUND, message)


def already_exists(message: str) -> RefusalError:
    """ALREADY_EXISTS: another content under a taken key."""
    return RefusalError(code_pb2.ALREADY_EXISTS, message)


def failed_precondition(message: str) -> RefusalError:
    """FAILED_PRECONDITION: a closed job, an older attempt, what cannot fit."""
    return RefusalError(code_pb2.FAILED_PRECONDITION, message)


def exhausted(message: str, *, retry_ms: int) -> RefusalError:
    """RESOURCE_EXHAUSTED with google.rpc.RetryInfo."""
    delay = duration_pb2.Duration()
    delay.FromMilliseconds(retry_ms)
    return RefusalError(code_pb2.RESOURCE_EXHAUSTED, message, error_details_pb2.RetryInfo(retry_delay=delay))


def out_of_time(message: str) -> RefusalError:
    """DEADLINE_EXCEEDED, what the caller's side says of it too: its deadline leaves no time for an answer."""
    return RefusalError(code_pb2.DEADLINE_EXCEEDED, message)


def unavailable(message: str) -> RefusalError:
    """UNAVAILABLE: try again, here or elsewhere."""
    return RefusalError(code_pb2.UNAVAILABLE, message)


def withdrawn() -> RefusalError:
    """UNAVAILABLE, because an open stream's token is withdrawn: its client may have another one by now."""
    return unavailable("the token that this stream was opened with is withdrawn; connect again")


def unauthenticated(message: str) -> RefusalError:
    """UNAUTHENTICATED: nobody knows who calls."""
    return RefusalError(code_pb2.UNAUTHENTICATED, message)


def permission_denied(message: str) -> RefusalError:
    """PERMISSION_DENIED: who calls is known, and may not."""
    return RefusalError(code_pb2.PERMISSION_DENIED, message)


def draining() -> RefusalError:
    """UNAVAILABLE, because the planner is stopping."""
    return unavailable("the planner is stopping; connect again")


def of_store(error: StoreError) -> RefusalError:
    """Translate what a store refuses."""
    match error:
        case TooOldError():
            return RefusalError(code_pb2.OUT_OF_RANGE, str(error))
        case AttemptOverError():
            return failed_precondition(str(error))
        case QueueFullError():
            return exhausted(f"{error}, DIP_MAX_QUEUED_BATCHES allows no more", retry_ms=_QUEUE_RETRY_MS)
        case QueueBytesError():
            return exhausted(f"{error}, DIP_MAX_QUEUED_BYTES allows no more", retry_ms=_QUEUE_RETRY_MS)
        case StoreFullError():
            return exhausted(f"the planner's store is full: {error}", retry_ms=_STORE_RETRY_MS)
        case _:
            return unavailable(f"the planner's store fails: {error}")


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 3] + "..."
