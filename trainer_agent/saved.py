"""One tensor that the graph of a forward saved for its backward, held where it can be let go of or put back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer_agent.errors import StageInterfaceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import torch


class Saved:
    """One tensor that a node of the graph saved, or its place while it is away.

    Torch does not look at versions where hooks hold what was saved, so this does: a tensor that was written to since
    would give a wrong gradient, silently.

    Parameters
    ----------
    tensor
        What is held from the start.
    copy
        Makes a copy for those who cannot wait until it is back: a backward that a layer runs inside of its forward.
    """

    __slots__ = ("_copy", "_released", "_tensor", "_version")

    def __init__(self, tensor: torch.Tensor | None = None, *, copy: Callable[[], torch.Tensor] | None = None) -> None:
        self._tensor: torch.Tensor | None = None
        self._copy = copy
        self._version = 0
        self._released = False
        if tensor is not None:
            self.put(tensor)

    def put(self, tensor: torch.Tensor) -> None:
        """Hold a tensor, without the graph that made it."""
        self._tensor, self._copy = tensor.detach(), None
        self._version = tensor._version

    def get(self) -> torch.Tensor:
        """Return the tensor.

        Raises
        ------
        StageInterfaceError
            It was written to since it was saved, it was let go of, or it is not back yet.
        """
        if self._copy is not None:
            return self._copy()
        if self._tensor is None and self._released:
            raise StageInterfaceError("a backward needs a tensor that is not held any more")
        if self._tensor is None:
            raise StageInterfaceError(
                "a backward needs a tensor that is not held yet: a layer that runs a backward inside of its forward "
                'cannot be recomputed; give its costs without the strategy "recompute"'
            )
        if self._tensor._version != self._version:
            raise StageInterfaceError(
                f"a tensor {list(self._tensor.shape)} that the backward needs was changed in place after it was saved; "
                "write x = x + y instead of x += y"
            )
        return self._tensor

    def release(self) -> None:
        """Let go of it for good."""
        self._tensor, self._copy, self._released = None, None, True

    @property
    def held(self) -> torch.Tensor | None:
        """The tensor, if it is here."""
        return self._tensor


def storages(tensors: Iterable[torch.Tensor]) -> dict[int, int]:
    """Map the address of each storage behind tensors to its size in bytes."""
    return {storage_of(tensor): tensor.untyped_storage().nbytes() for tensor in tensors}


def storage_of(tensor: torch.Tensor) -> int:
    """Return the address of the storage behind a tensor."""
    return int(tensor.untyped_storage()._cdata)
