"""What the graph of a cell saved for its backward, held where it can be let go of, made again, or moved away.

Autograd frees what a node saved when the node runs for the last time. A backward in two halves runs the graph more than
once, so it would free nothing before the very end, and torch's checkpointing would run a forward for each of its calls.
Here every saved tensor is held by a `Saved` instead, through ``torch.autograd.graph.saved_tensors_hooks``: the input
half lets go of those that the weight half does not need, and what is recomputed is recomputed once.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, cast

import torch
from torch.autograd.graph import saved_tensors_hooks

from trainer_agent.offloading import Offloaded
from trainer_agent.recomputing import Recomputed
from trainer_agent.saved import Saved, storage_of, storages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from torch import nn
    from torch.autograd.graph import Node

    from trainer_agent.stages import StageTask


class Run(Protocol):
    """One layer's forward whose saved tensors are away until `restore`."""

    def restore(self) -> None:
        """Bring them back."""


class SavedTensors:
    """All that the graph of one cell saved, from its forward to its weight half.

    Parameters
    ----------
    device
        Where the cell runs.
    parameters
        Lists the module's own parameters, which are nobody's to move or to count.
    """

    def __init__(self, device: torch.device, parameters: Callable[[], Iterable[torch.Tensor]]) -> None:
        self._device, self._parameters = device, parameters
        self._all: list[Saved] = []
        self._away: list[Run] = []
        self._uses: list[tuple[Saved, Node]] | None = None

    def holding(self) -> AbstractContextManager[object]:
        """Hold whatever is saved under this context."""
        return saved_tensors_hooks(self._hold, self._take)

    def recomputed(self, layer: nn.Module, x: torch.Tensor, task: StageTask) -> torch.Tensor:
        """Run a layer whose saved tensors are dropped, and made again by running it once more in `restore`."""
        run = Recomputed(layer, x, task, self._device)
        self._away.append(run)
        with saved_tensors_hooks(lambda tensor: self._place(run.place(tensor)), self._take):
            return cast("torch.Tensor", layer(x, task))

    def offloaded(self) -> AbstractContextManager[object]:
        """Move whatever is saved under this context to the host, until `restore`."""
        run, stays = Offloaded(), storages(self._parameters())
        self._away.append(run)

        def pack(tensor: torch.Tensor) -> Saved:
            return self._place(Saved(tensor) if storage_of(tensor) in stays else run.place(tensor))

        return saved_tensors_hooks(pack, self._take)

    def restore(self) -> None:
        """Bring back or make again all that is away: when the backward, or its input half, begins."""
        while self._away:
            self._away.pop().restore()

    @contextmanager
    def noting_uses(self) -> Iterator[list[tuple[Saved, Node]]]:
        """Note which node of the graph takes what."""
        self._uses = []
        try:
            yield self._uses
        finally:
            # A note of a node that holds what was noted: a cycle that goes through the graph, where Python sees none.
            self._uses = None

    def release(self) -> None:
        """Let go of everything."""
        for saved in self._all:
            saved.release()
        self._all.clear()
        self._away.clear()

    def tensors(self) -> Iterator[torch.Tensor]:
        """Iterate over what is held."""
        return (saved.held for saved in self._all if saved.held is not None)

    def _hold(self, tensor: torch.Tensor) -> Saved:
        return self._place(Saved(tensor))

    def _place(self, saved: Saved) -> Saved:
        self._all.append(saved)
        return saved

    def _take(self, saved: Saved) -> torch.Tensor:
        if self._uses is not None:
            self._uses.append((saved, torch._C._current_autograd_node()))
        return saved.get()
