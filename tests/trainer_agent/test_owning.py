"""Shows that the gradient of a parameter is nobody else's: what is added to it later changes nothing that is kept."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from trainer_agent.owning import owned_gradients

Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def views(x: torch.Tensor, p: torch.Tensor) -> torch.Tensor:
    return x.flatten() + p.flatten()


@pytest.mark.parametrize(
    "function",
    [
        views,
        lambda x, p: x.view(8, 5) + p.view(8, 5),
        lambda x, p: (torch.stack([x, x]) + p[None]).flatten(),
        lambda x, p: x.t() - p.t(),
        lambda x, p: torch.cat([x, p]),
    ],
)
def test_gradients_of_later_backwards_leave_what_a_backward_handed_on_alone(function: Function) -> None:
    p = nn.Parameter(torch.randn(5, 8))
    kept, copies = [], []
    for _ in range(3):
        x = torch.randn(5, 8, requires_grad=True)
        y = function(x, p)
        gradient = torch.randn_like(y)
        with owned_gradients([p]):
            y.backward(gradient)
        assert x.grad is not None
        kept += [gradient, x.grad]
        copies += [gradient.clone(), x.grad.clone()]
    for one, copy in zip(kept, copies, strict=True):
        assert torch.equal(one, copy)


def test_parameters_that_get_the_same_gradient_get_one_each() -> None:
    p, q = nn.Parameter(torch.randn(4)), nn.Parameter(torch.randn(4))
    for _ in range(2):
        with owned_gradients([p, q]):
            (p.view(2, 2) + q.view(2, 2)).backward(torch.ones(2, 2))
    assert p.grad is not None
    assert q.grad is not None
    assert p.grad.tolist() == q.grad.tolist() == [2.0] * 4


def test_what_is_a_parameters_alone_is_not_copied_nor_what_was_there() -> None:
    p, q, s = nn.Linear(4, 4), nn.Parameter(torch.randn(4)), nn.Embedding(4, 4, sparse=True)
    q.grad = torch.zeros(4)
    before, seen = q.grad.data_ptr(), []
    handle = p.weight.register_post_accumulate_grad_hook(lambda w: seen.append(w.grad.data_ptr()))
    with owned_gradients([*p.parameters(), q, s.weight]):
        (p(torch.randn(3, 4)) * q + s(torch.tensor([1, 2, 1]))).sum().backward()
    handle.remove()
    assert p.weight.grad is not None
    assert [p.weight.grad.data_ptr()] == seen
    assert q.grad.data_ptr() == before
    assert s.weight.grad is not None
    assert s.weight.grad.is_sparse
