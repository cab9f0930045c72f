"""Checkpoints of the fault run: parameters under names that do not depend on the partition, a file a rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

EVERY: Final = 4
"""Iterations between two checkpoints."""


def save(directory: Path, iteration: int, rank: int, named: Mapping[str, torch.nn.Parameter]) -> None:
    """Save one rank's parameters as they are before an iteration, if it is time."""
    if iteration % EVERY:
        return
    folder = _folder(directory, iteration)
    folder.mkdir(parents=True, exist_ok=True)
    written = folder / f"rank{rank}.partial"
    torch.save({name: parameter.detach() for name, parameter in named.items()}, written)
    written.rename(folder / f"rank{rank}.pt")


def complete(directory: Path, *, ranks: int) -> list[int]:
    """Return the iterations that all ranks have saved, ascending."""
    folders = (directory / "checkpoints").glob("*")
    return sorted(int(folder.name) for folder in folders if len(list(folder.glob("*.pt"))) == ranks)


def load(directory: Path, iteration: int, named: Mapping[str, torch.nn.Parameter]) -> None:
    """Load parameters, whichever ranks had them."""
    saved: dict[str, torch.Tensor] = {}
    for file in _folder(directory, iteration).glob("*.pt"):
        saved |= torch.load(file, weights_only=True)
    with torch.no_grad():
        for name, parameter in named.items():
            parameter.copy_(saved[name])


def _folder(directory: Path, iteration: int) -> Path:
    return directory / "checkpoints" / str(iteration)
