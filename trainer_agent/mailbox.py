"""Where tensors wait between the action that makes them and the action that takes them, local or from another rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainer_agent.errors import StageInterfaceError

if TYPE_CHECKING:
    import torch

    from trainer_agent.program import Parcel, TransferStep
    from trainer_agent.transfers import Incoming, Outgoing, Transport


@dataclass(frozen=True, kw_only=True, slots=True)
class _Stored:
    """A tensor, and how often it had been written to when it was put here."""

    tensor: torch.Tensor
    version: int


class Mailbox:
    """The parcels of one step on one rank.

    A module that writes into a tensor that it was handed would change what another consumer sees, silently; so every
    tensor is checked to be as it was when it is taken, and when its send is done.

    Parameters
    ----------
    transport
        Carries parcels to and from other ranks.
    number
        How many steps the executor ran before: the same on all ranks, whatever their iterations are called.
    """

    def __init__(self, transport: Transport, number: int) -> None:
        self._transport = transport
        self._number = number
        self._stored: dict[Parcel, _Stored] = {}
        self._incoming: dict[Parcel, Incoming] = {}
        self._outgoing: list[tuple[Outgoing, Parcel, _Stored]] = []

    def put(self, parcel: Parcel, tensor: torch.Tensor) -> None:
        """Store what was made on this rank, for a local consumer or a send."""
        self._stored[parcel] = _Stored(tensor=tensor, version=tensor._version)

    def take(self, parcel: Parcel) -> torch.Tensor:
        """Take a parcel out; waits where it comes from another rank."""
        incoming = self._incoming.pop(parcel, None)
        if incoming is not None:
            return incoming.wait()
        stored = self._stored.pop(parcel)
        _check_unchanged(parcel, stored)
        return stored.tensor

    def transfer(self, step: TransferStep) -> None:
        """Issue a transfer, without waiting for it."""
        if not step.sends:
            self._incoming[step.parcel] = self._transport.receive(step, self._number)
            return
        stored = self._stored.pop(step.parcel)
        self._outgoing.append((self._transport.send(stored.tensor, step, self._number), step.parcel, stored))
        self._release()

    def _release(self) -> None:
        """Let go of what is known to be sent."""
        while self._outgoing and self._outgoing[0][0].done():
            self._finish()

    def _finish(self) -> None:
        outgoing, parcel, stored = self._outgoing.pop(0)
        outgoing.wait()
        _check_unchanged(parcel, stored)

    def drain(self) -> None:
        """Wait until everything is sent; nothing is left in the mailbox after a whole program."""
        while self._outgoing:
            self._finish()


def _check_unchanged(parcel: Parcel, stored: _Stored) -> None:
    if stored.tensor._version != stored.version:
        raise StageInterfaceError(f"the {parcel} was changed in place after it was handed on; clone it first")
