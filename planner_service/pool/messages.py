"""What the pool and its workers say to each other, and how it travels: a length, then a pickle.

Both ends are this package in processes of one user, joined by a socket pair that nobody else holds.
"""

from __future__ import annotations

import pickle
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import socket

    from dip.errors import CannotFitError, InvalidRequestError

HEADER: Final = struct.Struct("!Q")


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanTask:
    """Make a plan.

    Parameters
    ----------
    request
        Serialized PlanRequest.
    budget_ms
        Search time; None leaves it to the request.
    iteration
        The iteration that the plan is streamed for; None where it is not (the Plan call).
    fallback
        Make the fixed schedule instead of searching.
    cores
        How many the search may use.
    """

    request: bytes = field(repr=False)
    budget_ms: int | None = None
    iteration: int | None = None
    fallback: bool = False
    cores: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class PartitionTask:
    """Make a partition.

    Parameters
    ----------
    request
        Serialized RegisterJobRequest.
    budget_ms
        Search time.
    fallback
        Make the default partition instead of searching.
    """

    request: bytes = field(repr=False)
    budget_ms: int
    fallback: bool = False


Task = PlanTask | PartitionTask


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One improvement of a search: when since it began, by which of its parts, and the makespan then."""

    elapsed_ms: int
    engine: str
    makespan_us: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitPlan:
    """A complete plan, serialized as it will be sent, so that the event loop only forwards bytes.

    Parameters
    ----------
    answer
        Serialized GetPlanResponse without reports and without what the responses hold or, for a task without an
        iteration, PlanResponse.
    responses
        A serialized StreamSchedulesResponse for each rank; none for a task without an iteration.
    lower_bound_us
        What no schedule of the batch can beat.
    steps
        How it was found; the last one says by what. None in the fixed schedule.
    search_ms
        How long the search was.
    """

    answer: bytes = field(repr=False)
    responses: tuple[bytes, ...] = field(repr=False)
    makespan_us: int
    fallback: bool
    lower_bound_us: int = 0
    steps: tuple[Step, ...] = ()
    search_ms: int = 0

    @property
    def found_by(self) -> str:
        """What found it."""
        return self.steps[-1].engine if self.steps else "the fixed schedule"

    @property
    def gap(self) -> float:
        """By which share of the bound it may be too long, at most."""
        return self.makespan_us / self.lower_bound_us - 1 if self.lower_bound_us else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Ready:
    """The worker has its modules and waits for a task."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Taken:
    """The worker has the task: what happens to it from here on may be the task's doing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A complete plan worth keeping; the search goes on."""

    plan: SplitPlan


@dataclass(frozen=True, kw_only=True, slots=True)
class Finished:
    """The task's last word.

    Parameters
    ----------
    result
        A plan, None where that is the one found last, a partition's bytes, or why there cannot be one.
    """

    result: SplitPlan | bytes | InvalidRequestError | CannotFitError | None


Message = Ready | Taken | Found | Finished


def pack(message: Task | Message) -> bytes:
    """Bytes of a message without its length."""
    return pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)


def send(connection: socket.socket, message: Task | Message) -> None:
    """Write a message to a blocking socket."""
    payload = pack(message)
    connection.sendall(HEADER.pack(len(payload)))
    connection.sendall(payload)


def receive_task(connection: socket.socket) -> Task | None:
    """Read a task from a blocking socket; None at the end of the stream."""
    header = _receive(connection, HEADER.size)
    if header is None:
        return None
    (size,) = HEADER.unpack(header)
    payload = _receive(connection, size)
    if payload is None:
        return None
    task: Task = pickle.loads(payload)
    return task


def _receive(connection: socket.socket, size: int) -> bytes | None:
    data = bytearray(size)
    view = memoryview(data)
    done = 0
    while done < size:
        count = connection.recv_into(view[done:])
        if count == 0:
            return None
        done += count
    return bytes(data)
