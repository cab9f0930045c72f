"""Moves what a layer saves to the host until its backward; the copies are in the order of the compute stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import torch
from torch.autograd.graph import saved_tensors_hooks

from trainer_agent.saved import Saved, storage_of, storages

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager


class Offloaded:
    """Tensors that are on the host until they are needed: pinned where they come from a CUDA device.

    On the host itself they are copies: no gain, the same gradients.
    """

    def __init__(self) -> None:
        self._places: list[tuple[Saved, torch.Tensor, torch.device]] = []

    def place(self, tensor: torch.Tensor) -> Saved:
        """Copy a tensor to the host and return its place, with nothing in it until `restore`."""
        copy, device = on_host(tensor), tensor.device
        saved = Saved(copy=lambda: copy.to(device, non_blocking=True, copy=True))
        self._places.append((saved, copy, device))
        return saved

    def restore(self) -> None:
        """Bring all of them back."""
        for saved, copy, device in self._places:
            saved.put(copy.to(device, non_blocking=True))
        self._places.clear()


def offloaded_alone(parameters: Iterable[torch.Tensor]) -> AbstractContextManager[object]:
    """Move whatever is saved under this context to the host, each until a node needs it: for a whole backward.

    As ``torch.autograd.graph.save_on_cpu``, which would move the parameters, too.

    Parameters
    ----------
    parameters
        Stay where they are.
    """
    stays = storages(parameters)

    def pack(tensor: torch.Tensor) -> _HostCopy:
        if storage_of(tensor) in stays:
            return Saved(tensor)
        return on_host(tensor), tensor.device

    def unpack(packed: _HostCopy) -> torch.Tensor:
        if isinstance(packed, Saved):
            return packed.get()
        copy, device = packed
        return copy.to(device, non_blocking=True)

    return saved_tensors_hooks(pack, unpack)


_HostCopy: TypeAlias = "Saved | tuple[torch.Tensor, torch.device]"


def on_host(tensor: torch.Tensor) -> torch.Tensor:
    """Copy a tensor to the host; from a CUDA device into pinned memory, in the order of its stream."""
    pinned = tensor.device.type == "cuda"
    copy = torch.empty_like(tensor, device="cpu", pin_memory=pinned, requires_grad=False)
    return copy.copy_(tensor.detach(), non_blocking=pinned)
