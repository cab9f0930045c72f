"""What is sent: calls of every method, with requests of every kind, each decided by a seed and its number."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from dip.planner.v1 import planner_pb2 as pb
from google.protobuf import message_factory

from benchmarks.fuzzing.messages import change_fields, random_message
from benchmarks.fuzzing.requests import NUM_JOBS, job_number, valid_request
from benchmarks.fuzzing.spoilers import noise, spoil

if TYPE_CHECKING:
    from google.protobuf.descriptor import MethodDescriptor
    from google.protobuf.message import Message

SERVICE: Final = pb.DESCRIPTOR.services_by_name["PlannerService"]
METHODS: Final = tuple(method.name for method in SERVICE.methods)
STREAMING: Final = frozenset(method.name for method in SERVICE.methods if method.server_streaming)

DRAWN, MUTATED, VALID, BYTES, ORDERS = "drawn", "mutated", "valid", "bytes", "orders"
UNKNOWN, CONNECTION = "unknown method", "connection"
KINDS: Final = (DRAWN, MUTATED, VALID, BYTES, ORDERS, UNKNOWN, CONNECTION)

_SHARES: Final = (25, 30, 18, 20, 5, 1, 1)
_UNKNOWN_METHODS: Final = ("", "plan", "Plans", "RegisterJob/", "StreamSchedules/0", "../Plan", "X" * 4_000, "%00")
# Batches most of all: what comes of them is what else there is to ask for.
_METHOD_SHARES: Final = tuple(3 if name == "SubmitBatch" else 1 for name in METHODS)
_LONGEST_ORDER: Final = 9
_ORDERED_JOBS: Final = 2 * NUM_JOBS
# What every HTTP/2 connection begins with, and an empty SETTINGS frame.
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_SETTINGS: Final = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"


@dataclass(frozen=True, kw_only=True, slots=True)
class Input:
    """One call.

    Parameters
    ----------
    kind
        How its request was made: one of `KINDS`.
    method
        The method's name, which the service may not have; empty where bytes are written to a connection.
    request
        The request's bytes, or all that is written.
    patience
        From 0 to 1: how long the client waits for a call that may take its time, a stream above all.
    """

    kind: str
    method: str
    request: bytes = field(repr=False)
    patience: float


def draw_case(seed: int, number: int) -> list[Input]:
    """Return the calls of one case, in the order in which they are made: one, but for strange orders."""
    return draw_from(random.Random(f"{seed} {number}"), number)


def draw_from(rng: random.Random, clock: int) -> list[Input]:
    """Draw a case; see `benchmarks.fuzzing.requests` for the clock."""
    (kind,) = rng.choices(KINDS, _SHARES)
    match kind:
        case "orders":
            return _strange_order(rng, clock)
        case "connection":
            return [Input(kind=kind, method="", request=_connection(rng), patience=rng.random())]
        case "unknown method":
            method, request = rng.choice(_UNKNOWN_METHODS), noise(b"", rng)
        case _:
            (method,) = rng.choices(METHODS, _METHOD_SHARES)
            request = _request(kind, method, rng, clock)
    return [Input(kind=kind, method=method, request=request, patience=rng.random())]


def request_type(method: str) -> type[Message]:
    """Return the class of a method's requests."""
    return message_factory.GetMessageClass(_descriptor(method).input_type)


def answer_type(method: str) -> type[Message]:
    """Return the class of a method's answers."""
    return message_factory.GetMessageClass(_descriptor(method).output_type)


def _descriptor(method: str) -> MethodDescriptor:
    found: MethodDescriptor = SERVICE.methods_by_name[method]
    return found


def _request(kind: str, method: str, rng: random.Random, clock: int) -> bytes:
    if kind == DRAWN:
        return random_message(request_type(method), rng).SerializeToString()
    request = valid_request(method, job_number(rng, clock), rng, clock)
    if kind == VALID:
        return request.SerializeToString()
    if isinstance(request, pb.RegisterJobRequest | pb.CloseJobRequest):
        request.job_id = f"spoilt-{clock % NUM_JOBS}"  # the others would be closed, or superseded for good, in no time
    if kind == BYTES:
        return spoil(request.SerializeToString(), rng)
    change_fields(request, rng, rng.choice((1, 1, 1, 2, 3, 5)))
    return request.SerializeToString()


def _strange_order(rng: random.Random, clock: int) -> list[Input]:
    """Return valid requests about one job, each at a moment when it may make no sense.

    Reports before batches, streams of attempts that nobody registered, another batch under a taken key, batches after
    the end, an older attempt after a newer one.
    """
    job, known = rng.randrange(_ORDERED_JOBS), [method for method in METHODS if method not in ("Plan", "ListJobs")]
    methods = ["RegisterJob"] if rng.random() < 0.7 else []
    methods += rng.choices(known, k=rng.randrange(2, _LONGEST_ORDER))
    attempt = 1 + clock
    made = []
    for method in methods:
        request = valid_request(method, job % NUM_JOBS, rng, clock)
        held = {"job_id": f"order-{job}", "attempt": attempt}
        held |= {"iteration": rng.randrange(4), "first_iteration": rng.randrange(4)}
        for name in held.keys() & request.DESCRIPTOR.fields_by_name.keys():
            setattr(request, name, held[name])
        made.append(Input(kind=ORDERS, method=method, request=request.SerializeToString(), patience=rng.random()))
        attempt += rng.choice((0, 0, 0, 0, 0, 1, -1))
    return made


def _connection(rng: random.Random) -> bytes:
    """Return what something that is no gRPC client writes: another protocol, or HTTP/2 that goes wrong."""
    begin = rng.choice(
        (b"", b"GET / HTTP/1.1\r\nHost: planner\r\n\r\n", b"\x16\x03\x01", _PREFACE, _PREFACE + _SETTINGS)
    )
    return begin + noise(b"", rng)
