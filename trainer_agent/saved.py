"""What the graph of a forward saves for its backward, held where it can be let go of, made again, or moved away.

Autograd frees what a node saved when the node runs for the last time. A backward in two halves runs the graph more than
once, so it would free nothing before the very end, and torch's checkpointing would run a forward for each of its calls.
Here every saved tensor is held by a `Saved` instead, through ``torch.autograd.graph.saved_tensors_hooks``: the input
half lets go of those that the weight half does not need, and what is recomputed is recomputed once.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_leaves, tree_map

from trainer_agent.errors import StageInterfaceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from torch import nn
    from torch.autograd.graph import Node

    from trainer_agent.stages import StageTask


class Saved:
    """One tensor that a node of the graph saved, or its place while it is away.

    Torch does not look at versions where hooks hold what was saved, so this does: a tensor that was written to since
    would give a wrong gradient, silently.
    """

    __slots__ = ("_released", "_tensor", "_version")

    def __init__(self, tensor: torch.Tensor | None = None) -> None:
        self._tensor: torch.Tensor | None = None
        self._version = 0
        self._released = False
        if tensor is not None:
            self.put(tensor)

    def put(self, tensor: torch.Tensor) -> None:
        """Hold a tensor, without the graph that made it."""
        self._tensor = tensor.detach()
        self._version = tensor._version

    def get(self) -> torch.Tensor:
        """Return the tensor.

        Raises
        ------
        StageInterfaceError
            It was written to since it was saved, or it was let go of.
        """
        if self._tensor is None:
            raise StageInterfaceError(
                "a backward needs a tensor that is not held" + (" any more" if self._released else " yet")
            )
        if self._tensor._version != self._version:
            raise StageInterfaceError(
                f"a tensor {list(self._tensor.shape)} that the backward needs was changed in place after it was saved; "
                "write x = x + y instead of x += y"
            )
        return self._tensor

    def release(self) -> None:
        """Let go of it for good."""
        self._tensor, self._released = None, True

    @property
    def held(self) -> torch.Tensor | None:
        """The tensor, if it is here."""
        return self._tensor


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
            return self._place(Saved(tensor) if _storage(tensor) in stays else run.place(tensor))

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


class Offloaded:
    """Tensors that are on the host until they are needed: pinned where they come from a CUDA device.

    On the host itself they are copies: no gain, the same gradients.
    """

    def __init__(self) -> None:
        self._places: list[tuple[Saved, torch.Tensor, torch.device]] = []

    def place(self, tensor: torch.Tensor) -> Saved:
        """Copy a tensor to the host and return its place, with nothing in it."""
        saved = Saved()
        self._places.append((saved, on_host(tensor), tensor.device))
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
        if _storage(tensor) in stays:
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


def storages(tensors: Iterable[torch.Tensor]) -> dict[int, int]:
    """Map the address of each storage behind tensors to its size in bytes."""
    return {_storage(tensor): tensor.untyped_storage().nbytes() for tensor in tensors}


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _detached(x: object) -> object:
    """Cut a value off its graph, so that keeping it keeps nothing else."""
    if not isinstance(x, torch.Tensor):
        return x
    return x.detach().requires_grad_(x.requires_grad)


def _device_state(device: torch.device) -> torch.Tensor | None:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else None


def _never(packed: None) -> torch.Tensor:
    raise StageInterfaceError("a layer that is recomputed ran a backward of its own")
