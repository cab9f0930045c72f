"""Who may call what, decided when a call's headers are there: of who may not, no message is received.

gRPC hands an interceptor the headers before it reads the request. A call that is turned away here costs the planner
neither the memory nor the decoding of what its client sends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio
from grpc_health.v1 import health

from planner_service import settings as names
from planner_service.access import Caller, current_caller, roles_for, set_caller
from planner_service.server import refusals
from planner_service.server.contract import SERVICE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from google.protobuf.message import Message

    from planner_service.access import Access, Tokens

    Handler = grpc.RpcMethodHandler[Any, Any]

_AUTHORIZATION: Final = "authorization"
_SCHEME: Final = "bearer"
_SHOWN_CHARACTERS: Final = 200


class Authentication(grpc.aio.ServerInterceptor):
    """Asks for a token where the planner has an access file.

    Health is answered to anybody: probes bring no token, and it says whether the planner serves and no more.
    Reflection, which tells what the contract in this repository tells anyway, is for every known token.
    """

    def __init__(self, access: Access) -> None:
        self._access = access

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        """Let a call go on, or answer it with why it may not."""
        tokens = self._access.tokens
        service, _, method = handler_call_details.method.removeprefix("/").rpartition("/")
        if tokens is None or service == health.SERVICE_NAME:
            return await continuation(handler_call_details)
        try:
            caller = _caller(tokens, handler_call_details.invocation_metadata)
            if service == SERVICE.full_name:
                _check_role(caller, method)
        except refusals.RefusalError as refusal:
            return _refusing(refusal)
        set_caller(caller)
        return await continuation(handler_call_details)


def check_job(request: Message) -> None:
    """Check that the caller may touch the job that a request names, if it names one.

    It is decided by the name alone: whether there is such a job, the answer does not tell.

    Raises
    ------
    RefusalError
        PERMISSION_DENIED.
    """
    job_id = getattr(request, "job_id", None)
    caller = current_caller()
    if job_id is not None and not caller.may_touch(job_id):
        allowed = ", ".join(caller.jobs)
        if len(allowed) > _SHOWN_CHARACTERS:
            allowed = f"{allowed[:_SHOWN_CHARACTERS]}..."
        raise refusals.permission_denied(f"{caller.name} may not touch job {job_id!r}; its jobs are {allowed}")


def _caller(tokens: Tokens, metadata: Sequence[tuple[str, str | bytes]]) -> Caller:
    """Find out who calls; never tells what was presented."""
    held = [value for key, value in metadata if key == _AUTHORIZATION]
    if not held:
        raise refusals.unauthenticated(
            "this planner asks for a token: set DIP_TOKEN_FILE to the file that holds yours (or send metadata "
            "'authorization: Bearer TOKEN')"
        )
    scheme, _, token = held[0].partition(" ") if len(held) == 1 and isinstance(held[0], str) else ("", "", "")
    if scheme.lower() != _SCHEME or not token:
        raise refusals.unauthenticated("metadata 'authorization' must be there once, and hold 'Bearer TOKEN'")
    caller = tokens.caller(token)
    if caller is None:
        raise refusals.unauthenticated(
            f"the token is not known here, or not any more: {names.ACCESS_FILE} of the planner has no entry with its "
            "SHA-256 (dip token makes both); DIP_TOKEN_FILE must hold a current one"
        )
    return caller


def _check_role(caller: Caller, method: str) -> None:
    allowed = roles_for(method)
    if allowed.isdisjoint(caller.roles):
        held, wanted = (", ".join(sorted(roles)) for roles in (caller.roles, allowed))
        raise refusals.permission_denied(
            f"{caller.name} ({held}) may not call {method[:_SHOWN_CHARACTERS]}, which is for {wanted}"
        )


def _refusing(refusal: refusals.RefusalError) -> Handler:
    """Make a handler that reads nothing and ends with a status."""

    async def refuse(_requests: object, context: grpc.aio.ServicerContext[object, object]) -> None:
        await refusal.abort(context)

    return grpc.stream_stream_rpc_method_handler(refuse)
