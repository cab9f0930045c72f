"""What went wrong with a call to a planner, and what that means for the calls to come."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
from dip.connecting import advice, explanation
from dip.validation import shown_text
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from trainer_agent.errors import TrainerAgentError

if TYPE_CHECKING:
    from dip.connecting import ClientFiles

    from trainer_agent.connections import Connection

LONGEST_RETRY_S = 60.0
"""How long a planner may have its client wait; it would be waited for as long as one likes that is broken, or lies."""

_SHOWN_CHARACTERS = 1_000
_CONTRACT_CODES = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.ALREADY_EXISTS,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)
# What is refused is who asks. That may be set right, here or at the planner, while the training goes on.
_DENIALS = frozenset({grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED})
# Besides what planners ask to retry: what this side gave up on. Every call here may be made twice.
_RETRYABLE_CODES = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
    }
)


class PlannerCallError(TrainerAgentError):
    """A call to the planner that did not succeed.

    Parameters
    ----------
    rpc
        Name of the call.
    endpoint
        Where it went.
    code
        Its gRPC status.
    details
        What the planner, or gRPC on its behalf, said about it.
    retry_after_s
        How long the planner asks to wait before the next try; 0 where it does not.
    explained
        Whether the details say what keeps this side from connecting, and how to set it right.
    """

    def __init__(
        self,
        *,
        rpc: str,
        endpoint: str,
        code: grpc.StatusCode,
        details: str,
        retry_after_s: float = 0.0,
        explained: bool = False,
    ) -> None:
        super().__init__(f"{rpc} at planner {endpoint}: {code.name}: {details}")
        self.rpc = rpc
        self.endpoint = endpoint
        self.code = code
        self.details = details
        self.retry_after_s = retry_after_s
        self.explained = explained

    @property
    def outage(self) -> bool:
        """Whether the planner is away, overloaded or broken, rather than refusing what it was asked."""
        return self.code not in _CONTRACT_CODES | _DENIALS

    @property
    def denied(self) -> bool:
        """Whether the planner turns away whoever asks: without a valid token, or with one for other jobs or roles."""
        return self.code in _DENIALS

    @property
    def elsewhere(self) -> bool:
        """Whether another planner of the same store may do what this one did not.

        So with every outage but RESOURCE_EXHAUSTED: that asks to wait, and the others share the store that is full.
        INTERNAL and UNKNOWN may be this planner's alone; a request that breaks every planner moves on in vain, which
        harms nothing.
        """
        return self.outage and self.code != grpc.StatusCode.RESOURCE_EXHAUSTED

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.code in _RETRYABLE_CODES


def call_error(
    rpc: str, connection: Connection, files: ClientFiles, cause: grpc.RpcError | grpc.FutureCancelledError
) -> PlannerCallError:
    """Make the error of a call from gRPC's.

    Parameters
    ----------
    rpc
        Name of the call.
    connection
        Where it went.
    files
        What it was connected with.
    cause
        What gRPC raised.
    """
    code, details, retry_after_s = grpc.StatusCode.CANCELLED, "cancelled", 0.0
    if isinstance(cause, grpc.Call):
        code, retry_after_s = cause.code(), _retry_after_s(cause)
        details = shown_text(cause.details() or "no details", _SHOWN_CHARACTERS)
    elif isinstance(cause, grpc.RpcError):
        # Every error that gRPC raises for a call is the call itself; its type stubs know only the bare RpcError.
        code, details = grpc.StatusCode.UNKNOWN, str(cause)
    if code == grpc.StatusCode.CANCELLED and connection.left:
        details = f"left for another planner: {connection.left}"
    why = explanation(details, connection.endpoint, connection.tls) if code == grpc.StatusCode.UNAVAILABLE else ""
    if why:
        details = f"{why} (gRPC: {details})"
    if what_to_do := advice(code, files):
        details = f"{details}; {what_to_do}"
    return PlannerCallError(
        rpc=rpc,
        endpoint=str(connection.endpoint),
        code=code,
        details=details,
        retry_after_s=retry_after_s,
        explained=bool(why),
    )


def _retry_after_s(call: grpc.Call) -> float:
    try:
        status = rpc_status.from_call(call)
        for detail in status.details if status is not None else ():
            info = error_details_pb2.RetryInfo()
            if detail.Unpack(info):
                asked_s = info.retry_delay.seconds + info.retry_delay.nanos * 1e-9
                return min(max(0.0, asked_s), LONGEST_RETRY_S)
    except (ValueError, DecodeError):
        pass  # the trailing metadata contradicts the call, or cannot be read: nothing to learn from it
    return 0.0
