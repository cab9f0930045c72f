"""Keeps the gradients of parameters in memory of their own.

Where nothing but views lie between a parameter and what a gradient arrives at (``x.flatten() + bias.view(...)``, or one
row alone), autograd makes the parameter's gradient a view of what arrived. The next backward adds to it in place, and
would change what arrived while it still travels to another chunk, or waits for its weight half.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_BY_ONE_TENSOR = 2
"""Uses of a storage that one tensor holds, seen from Python: the tensor's, and that of the one who looks."""


@contextmanager
def owned_gradients(parameters: Iterable[torch.Tensor]) -> Iterator[None]:
    """Copy what a backward under this context makes a parameter's gradient and somebody else holds as well.

    Gradients that were there before are added to in place, and stay what they are.

    Parameters
    ----------
    parameters
        All that the backward may reach.
    """
    fresh = [parameter for parameter in parameters if parameter.grad is None]
    yield
    for parameter in fresh:
        if parameter.grad is not None and _is_shared(parameter.grad):
            parameter.grad = parameter.grad.clone()


def _is_shared(gradient: torch.Tensor) -> bool:
    if gradient.layout != torch.strided:
        return False
    return torch._C._storage_Use_Count(gradient.untyped_storage()._cdata) > _BY_ONE_TENSOR
