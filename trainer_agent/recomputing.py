"""Runs a layer again for what its first run did not keep: once, however many calls of autograd need it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_leaves, tree_map

from trainer_agent.errors import StageInterfaceError
from trainer_agent.saved import Saved

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

    from trainer_agent.stages import StageTask


class _AllThereError(Exception):
    """Ends a recomputation: nothing after this is saved."""


class Recomputed:
    """One layer's forward, to be run again once for all that it saved.

    Parameters
    ----------
    layer, x, task
        The layer and what it is called with; what ``x`` holds is kept.
    device
        Whose random numbers are drawn the same way again, beside the host's.
    """

    def __init__(self, layer: nn.Module, x: torch.Tensor, task: StageTask, device: torch.device) -> None:
        self._layer, self._task, self._device = layer, task, device
        self._x: object = tree_map(_detached, x)
        self._inputs = [Saved(leaf) for leaf in tree_leaves(self._x) if isinstance(leaf, torch.Tensor)]
        self._states = torch.get_rng_state(), _device_state(device)
        self._places: list[tuple[Saved, torch.Size]] = []

    def place(self, tensor: torch.Tensor) -> Saved:
        """Return the place of the next tensor that the layer saves, with nothing in it."""
        saved = Saved()
        self._places.append((saved, tensor.shape))
        return saved

    def restore(self) -> None:
        """Run the layer again, up to the last tensor that it saves.

        Raises
        ------
        StageInterfaceError
            It does something else this time, or what it was called with was changed in place.
        """
        for given in self._inputs:
            given.get()
        places = iter(self._places)
        missing = len(self._places)

        def pack(tensor: torch.Tensor) -> None:
            nonlocal missing
            if missing:
                saved, shape = next(places)
                if tensor.shape != shape:
                    raise self._other_work(f"a tensor {list(tensor.shape)} where it had {list(shape)}")
                saved.put(tensor)
                missing -= 1
            if not missing:
                raise _AllThereError

        if missing:
            try:
                with self._random_numbers_again(), torch.enable_grad(), saved_tensors_hooks(pack, _never):
                    self._layer(self._x, self._task)
            except _AllThereError:
                pass
            if missing:
                raise self._other_work(f"{missing} tensors less")
        self._x = None
        self._inputs.clear()
        self._places.clear()

    def _other_work(self, what: str) -> StageInterfaceError:
        return StageInterfaceError(
            f"{self._task.chunk}: a layer that was recomputed saved {what}; it must do the same both times"
        )

    @contextmanager
    def _random_numbers_again(self) -> Iterator[None]:
        host, device = self._states
        on_cuda = self._device.type == "cuda"
        with torch.random.fork_rng(devices=[self._device] if on_cuda else []):
            torch.set_rng_state(host)
            if device is not None:
                torch.cuda.set_rng_state(device, self._device)
            yield


def _detached(x: object) -> object:
    """Cut a value off its graph, so that keeping it keeps nothing else."""
    if not isinstance(x, torch.Tensor):
        return x
    return x.detach().requires_grad_(x.requires_grad)


def _device_state(device: torch.device) -> torch.Tensor | None:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else None


def _never(packed: None) -> torch.Tensor:
    raise StageInterfaceError("a layer that is recomputed ran a backward of its own")
