"""Point-to-point transfers between the ranks of a pipeline, over torch.distributed.

A transfer is issued and never awaited by the one who issues it; the receiver waits when compute needs what arrives, the
sender at the end of the step. Every wait ends within the step timeout, with an error that names rank, action and peer.

On gloo every transfer is two messages. The header says which transfer this is and how many bytes follow. Headers of an
ordered pair of ranks travel first in, first out, under one tag; a payload's tag is drawn from its header. So a transfer
that is out of order, left over from another step, or of another size is found before its bytes are looked at, and
never fills a buffer that was posted for another one (gloo ends the process where more arrives than was posted, and says
nothing where less does). On NCCL there are no tags, and looking at a header would make the host wait for the device:
the order of a plan is trusted there, and sizes are checked on the sender's side alone.
"""

from __future__ import annotations

import time
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import torch
import torch.distributed as dist

from trainer_agent.errors import PeerLostError, StepTimeoutError, TransferMismatchError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta

    from trainer_agent.mesh import Mesh
    from trainer_agent.program import TransferStep

HEADER_TAG, WARM_UP_TAG, FIRST_PAYLOAD_TAG = 0, 1, 2
_LAST_TAG = 2**31 - 1


class Outgoing(Protocol):
    """A send that was issued."""

    def done(self) -> bool:
        """Whether the tensor is known to be sent, so that its memory can go; on gloo never before it is waited for."""

    def wait(self) -> None:
        """Wait until the tensor is sent."""


class Incoming(Protocol):
    """A receive that was issued."""

    def wait(self) -> torch.Tensor:
        """Wait until the tensor is there."""


class Transport(Protocol):
    """What the executor sends and receives with; tests put their own in front of `GroupTransport`."""

    def warm_up(self) -> None:
        """Open the connections of all pairs of ranks; collective."""

    def send(self, tensor: torch.Tensor, step: TransferStep, number: int) -> Outgoing:
        """Issue a send in the executor's step of this number."""

    def receive(self, step: TransferStep, number: int) -> Incoming:
        """Issue a receive in the executor's step of this number."""


@contextmanager
def naming(rank: int, peer: int, action: str, timeout: timedelta) -> Iterator[None]:
    """Turn what torch.distributed raises into an error that names rank, action and peer.

    Raises
    ------
    StepTimeoutError
        The other side did not answer in time.
    PeerLostError
        The connection is gone.
    """
    try:
        yield
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        if "imed out" in reason:
            waited = f"no answer within {timeout.total_seconds():g} s ({reason})"
            raise StepTimeoutError(rank=rank, peer=peer, action=action, reason=waited) from error
        raise PeerLostError(rank=rank, peer=peer, action=action, reason=reason) from error


class GroupTransport:
    """Transfers over the pipeline group of a mesh.

    Parameters
    ----------
    mesh
        Groups, device and timeout.
    headers
        Whether every payload has a header. None: on gloo only.
    """

    def __init__(self, mesh: Mesh, *, headers: bool | None = None) -> None:
        self._mesh = mesh
        self._headers = mesh.device.type == "cpu" if headers is None else headers

    def warm_up(self) -> None:
        """Send one number each way between all pairs of ranks, in one fixed order."""
        mesh = self._mesh
        token = torch.zeros(1, dtype=torch.int64, device=mesh.device)
        for low in range(mesh.ranks):
            for high in range(low + 1, mesh.ranks):
                if mesh.rank not in (low, high):
                    continue
                peer = low + high - mesh.rank
                with naming(mesh.rank, peer, "the first transfer of this pair of ranks", mesh.timeout):
                    for source in (low, high):
                        if source == mesh.rank:
                            mesh.pipeline.send([token], peer, WARM_UP_TAG).wait(mesh.timeout)
                        else:
                            mesh.pipeline.recv([token], peer, WARM_UP_TAG).wait(mesh.timeout)

    def send(self, tensor: torch.Tensor, step: TransferStep, number: int) -> Outgoing:
        """Issue a send of a tensor that nobody writes to until it is sent."""
        messages = [(tensor.contiguous(), FIRST_PAYLOAD_TAG)]
        if self._headers:
            header = _header(step, number)
            messages = [(header, HEADER_TAG), (messages[0][0], _payload_tag(header))]
        return _Sent(self._mesh, step, messages)

    def receive(self, step: TransferStep, number: int) -> Incoming:
        """Issue a receive into a new tensor on the mesh's device."""
        return _Awaited(self._mesh, step, _header(step, number) if self._headers else None)


class _Sent:
    """A send: its messages stay alive until they are out."""

    def __init__(self, mesh: Mesh, step: TransferStep, messages: list[tuple[torch.Tensor, int]]) -> None:
        self._mesh, self._step = mesh, step
        self._kept = [tensor for tensor, _ in messages if tensor.numel()]
        with naming(mesh.rank, step.peer, str(step), mesh.timeout):
            self._works = [mesh.pipeline.send([tensor], step.peer, tag) for tensor, tag in messages if tensor.numel()]

    def done(self) -> bool:
        return all(work.is_completed() for work in self._works)

    def wait(self) -> None:
        with naming(self._mesh.rank, self._step.peer, str(self._step), self._mesh.timeout):
            for work in self._works:
                work.wait(self._mesh.timeout)
        self._kept.clear()


class _Awaited:
    """A receive: the header first, then the payload, within one timeout."""

    def __init__(self, mesh: Mesh, step: TransferStep, header: torch.Tensor | None) -> None:
        self._mesh, self._step = mesh, step
        self._tensor = torch.empty(step.shape, dtype=step.dtype, device=mesh.device)
        self._expected, self._found = header, torch.empty_like(header) if header is not None else None
        self._works: list[dist.Work] = []
        tag = FIRST_PAYLOAD_TAG if header is None else _payload_tag(header)
        with naming(mesh.rank, step.peer, str(step), mesh.timeout):
            if self._found is not None:
                self._works.append(mesh.pipeline.recv([self._found], step.peer, HEADER_TAG))
            if self._tensor.numel():
                self._works.append(mesh.pipeline.recv([self._tensor], step.peer, tag))

    def wait(self) -> torch.Tensor:
        mesh, step = self._mesh, self._step
        deadline = time.monotonic() + mesh.timeout.total_seconds()
        with naming(mesh.rank, step.peer, str(step), mesh.timeout):
            for number, work in enumerate(self._works):
                work.wait(_left(deadline, mesh.timeout))
                if not number:
                    self._check_header()
        return self._tensor

    def _check_header(self) -> None:
        if self._expected is None or self._found is None or torch.equal(self._expected, self._found):
            return
        reason = f"{_described(self._found)} arrived, the plan says {_described(self._expected)}"
        raise TransferMismatchError(rank=self._mesh.rank, peer=self._step.peer, action=str(self._step), reason=reason)


def _left(deadline: float, timeout: timedelta) -> timedelta:
    """Return what is left of a timeout, at least a millisecond: gloo takes 0 for no limit."""
    left = max(deadline - time.monotonic(), 1e-3)
    return min(timeout, type(timeout)(seconds=left))


def _header(step: TransferStep, number: int) -> torch.Tensor:
    """Say which transfer this is: number of the step, direction, chunks, sub-microbatches, bytes of the payload."""
    parcel, num_bytes = step.parcel, step.dtype.itemsize
    for size in step.shape:
        num_bytes *= size
    return torch.tensor(
        [
            number,
            parcel.gradient,
            zlib.crc32(parcel.source.module.encode()),
            parcel.source.chunk,
            parcel.source.sub_microbatch,
            zlib.crc32(parcel.target.module.encode()),
            parcel.target.chunk,
            parcel.target.sub_microbatch,
            num_bytes,
        ],
        dtype=torch.int64,
    )


def _payload_tag(header: torch.Tensor) -> int:
    span = _LAST_TAG - FIRST_PAYLOAD_TAG
    return FIRST_PAYLOAD_TAG + zlib.crc32(header.numpy().tobytes()) % span


def _described(header: torch.Tensor) -> str:
    number, gradient, _, chunk, sub, _, to_chunk, to_sub, num_bytes = header.tolist()
    return (
        f"the {'gradient' if gradient else 'activation'} of step {number} from chunk {chunk}, "
        f"sub-microbatch {sub}, to chunk {to_chunk}, sub-microbatch {to_sub}, {num_bytes} bytes,"
    )
