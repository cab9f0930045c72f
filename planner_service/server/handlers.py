"""The service's methods as gRPC handlers that always end with a status.

Answers may be messages or bytes already serialized: a big plan is serialized in a worker, not in the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

import grpc
import grpc.aio
from dip.errors import CannotFitError, InvalidRequestError
from dip.validation import validate_names
from google.protobuf import message_factory
from google.protobuf.message import DecodeError, Message

from planner_service.access import ANYONE, current_caller, peer_caller, set_caller
from planner_service.metrics import ByteMetrics
from planner_service.server import refusals
from planner_service.server.authentication import check_job
from planner_service.server.contract import SERVICE
from planner_service.server.decoding import Decoder
from planner_service.server.telling import tell_request
from planner_service.store import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

_log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[object, object]
Answer = Message | bytes


class Drainable(Protocol):
    """What has the service's methods and knows whether it stops."""

    @property
    def draining(self) -> bool:
        """Whether calls are turned away."""


def add_servicer(server: grpc.aio.Server, servicer: Drainable) -> None:
    """Have a server answer every method of the contract with the servicer's method of that name in snake case.

    A streaming method writes to its context, which waits while the client does not read, and returns nothing.
    """
    handlers: dict[str, grpc.RpcMethodHandler[bytes, object]] = {}
    decoder = Decoder()
    for method in SERVICE.methods:
        make = grpc.unary_stream_rpc_method_handler if method.server_streaming else grpc.unary_unary_rpc_method_handler
        behaviour = getattr(servicer, _snake_case(method.name))
        request_type = message_factory.GetMessageClass(method.input_type)
        measured = ByteMetrics(method.name)
        handlers[method.name] = make(
            _ending_with_a_status(servicer, behaviour, decoder, request_type, measured),
            response_serializer=_serializer(measured),
        )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE.full_name, handlers),))


def _ending_with_a_status(
    servicer: Drainable,
    behaviour: Callable[[Message, Context], Awaitable[Answer | None]],
    decoder: Decoder,
    request_type: type[Message],
    measured: ByteMetrics,
) -> Callable[[bytes, Context], Awaitable[Answer | None]]:
    """Turn what is raised on purpose into its status; gRPC makes UNKNOWN of a bug, and cancellation passes."""

    async def answer(request: bytes, context: Context) -> Answer | None:
        try:
            if servicer.draining:
                raise refusals.draining()
            message = await decoder.decode(request, request_type)
            validate_names(message)
            tell_request(message)
            check_job(message)
            return await behaviour(message, context)
        except DecodeError:
            await refusals.undecodable(request_type.DESCRIPTOR.name).abort(context)
        except (refusals.RefusalError, InvalidRequestError, CannotFitError, StoreError) as error:
            await _refusal(error).abort(context)

    async def handle(request: bytes, context: Context) -> Answer | None:
        measured.received(len(request))
        if current_caller() is ANYONE:  # no token said who it is
            set_caller(peer_caller(context.peer(), context.auth_context()))
        try:
            return await answer(request, context)
        except grpc.aio.InternalError as error:
            # Sending fails where the client left a moment before: the call is cancelled, only that nobody said so yet.
            _log.debug("a call of %s is given up: %s", request_type.DESCRIPTOR.name, error)
            raise asyncio.CancelledError from error

    return handle


def _refusal(error: refusals.RefusalError | InvalidRequestError | CannotFitError | StoreError) -> refusals.RefusalError:
    match error:
        case refusals.RefusalError():
            return error
        case InvalidRequestError():
            return refusals.invalid(error)
        case CannotFitError():
            return refusals.failed_precondition(str(error))
        case StoreError():
            return refusals.of_store(error)


def _serializer(measured: ByteMetrics) -> Callable[[object], bytes]:
    def serialize(answer: object) -> bytes:
        message = _serialize(answer)
        measured.sent(len(message))
        return message

    return serialize


def _serialize(answer: object) -> bytes:
    match answer:
        case bytes():
            return answer
        case Message():
            return answer.SerializeToString()
        case _:
            raise TypeError(f"an answer is a message or bytes, not {type(answer)}")


def _snake_case(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
