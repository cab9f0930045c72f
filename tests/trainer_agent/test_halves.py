"""Shows that two halves of a backward give what the whole gives, on graphs of every kind, and what they hold."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest
import torch
from backward_graphs import DTYPE, GRAPHS, Made, mlp, parameter, used_around_another
from torch import nn
from torch.utils.checkpoint import checkpoint

from trainer_agent.errors import StageInterfaceError
from trainer_agent.halves import WeightHalf, input_half
from trainer_agent.holding import SavedTensors
from trainer_agent.saved import storages

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def given(*, needs_gradient: bool = True) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(5, 4, generator=generator, dtype=DTYPE).requires_grad_(needs_gradient)


def whole(made: Made, x: torch.Tensor) -> list[torch.Tensor | None]:
    """Gradients of an ordinary backward: of the input, then of the parameters."""
    torch.manual_seed(5)
    y = made.run(x)
    y.backward(torch.cos(y.detach()))
    return taken(made, x)


def taken(made: Made, x: torch.Tensor) -> list[torch.Tensor | None]:
    """Take the gradients away."""
    found = [tensor.grad for tensor in (x, *made.parameters)]
    for tensor in made.parameters:
        tensor.grad = None
    return found


def begun(made: Made, x: torch.Tensor) -> tuple[WeightHalf, SavedTensors]:
    """Run a forward and the input half."""
    torch.manual_seed(5)
    saved = SavedTensors(x.device, lambda: made.parameters)
    with saved.holding():
        y = made.run(x)
    return input_half(y, torch.cos(y.detach()), [x] if x.requires_grad else [], saved), saved


def assert_same(found: Sequence[torch.Tensor | None], wanted: Sequence[torch.Tensor | None]) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("needs_gradient", [True, False], ids=["input", "no input"])
@pytest.mark.parametrize("make", GRAPHS)
def test_halves_give_the_gradients_of_the_whole(make: Callable[[], Made], needs_gradient: bool) -> None:
    torch.manual_seed(1)
    made = make()
    if not made.parameters and not needs_gradient:
        return
    wanted = whole(made, given(needs_gradient=needs_gradient))
    x = given(needs_gradient=needs_gradient)
    left, saved = begun(made, x)
    if needs_gradient:
        assert_same([x.grad], wanted[:1])
    left.run()
    saved.release()
    assert_same(taken(made, x), wanted)


@pytest.mark.parametrize("make", GRAPHS)
def test_weight_halves_of_several_in_another_order_add_up(make: Callable[[], Made]) -> None:
    torch.manual_seed(1)
    made = make()
    wanted = whole(made, given())
    halves = [begun(made, given()) for _ in range(3)]
    for place in (1, 2, 0):
        halves[place][0].run()
    found = taken(made, given())[1:]
    for one, other in zip(found, wanted[1:], strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            torch.testing.assert_close(one, 3 * other, rtol=1e-12, atol=1e-13)


def test_the_input_half_leaves_large_parameters_to_the_weight_half() -> None:
    made = mlp()
    left, _ = begun(made, given())
    done = [p.grad is not None for p in made.parameters]
    assert done == [p.dim() == 1 and p.shape == (4,) and place < 2 for place, p in enumerate(made.parameters)]
    assert sum(len(group.parameters) for group in left.groups) == 4


def test_neither_half_computes_what_the_other_does() -> None:
    """Of the products of matrices each half has one for each linear layer."""
    layers = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)).to(DTYPE)
    made = Made(layers, list(layers.parameters()))
    saved = SavedTensors(torch.device("cpu"), lambda: made.parameters)
    x = given()
    with saved.holding():
        y = made.run(x)
    with torch.profiler.profile() as first:
        left = input_half(y, torch.ones_like(y), [x], saved)
    with torch.profiler.profile() as second:
        left.run()
    for profile in (first, second):
        assert sum(event.count for event in profile.key_averages() if event.key == "aten::mm") == 3


def test_hooks_of_parameters_run_once_for_each_backward_and_see_the_gradient() -> None:
    made, seen = used_around_another(), []
    w = made.parameters[0]
    handles = [
        w.register_hook(lambda gradient: gradient * 2),
        w.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone())),
    ]
    wanted = whole(made, given())
    x = given()
    left, _ = begun(made, x)
    left.run()
    assert_same(taken(made, x), wanted)
    assert len(seen) == 2
    torch.testing.assert_close(*seen, rtol=1e-12, atol=0)
    for handle in handles:
        handle.remove()


def test_what_the_weight_half_does_not_need_goes_after_the_input_half_and_all_after_the_weight_half() -> None:
    made, x = mlp(), given()
    saved = SavedTensors(x.device, lambda: made.parameters)
    with saved.holding():
        y = made.run(x)
    own = storages(made.parameters)
    before = storages(saved.tensors()).keys() - own
    left = input_half(y, torch.ones_like(y), [x], saved)
    between = storages(saved.tensors()).keys() - own
    # The input of each linear layer stays; the norm's input, the GELU's and the dropout's mask went.
    assert len(between) == 2
    assert between < before
    assert [gradient.shape for gradient in left.tensors()] == [(5, 8), (5, 4)]
    left.run()
    saved.release()
    assert not list(saved.tensors())
    assert not list(left.tensors())


def test_the_graph_is_gone_after_the_weight_half() -> None:
    """At once, not when Python collects its garbage."""
    gc.disable()
    try:
        gone = []

        class _Marked(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
                gone.append(weakref.ref(ctx))
                return x.clone()

            @staticmethod
            def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
                return gradient

        w = parameter(4, 4)
        made = Made(lambda x: torch.sin(_Marked.apply(torch.sin(x @ w)) @ w), [w])  # type: ignore[no-untyped-call]
        left, saved = begun(made, given())
        assert gone[0]() is not None
        left.run()
        saved.release()
        assert gone[0]() is None
    finally:
        gc.enable()


def test_a_tensor_that_was_written_to_after_it_was_saved_is_an_error_in_either_half() -> None:
    for needs_gradient in (True, False):
        w, x = parameter(4, 4), given(needs_gradient=needs_gradient)
        saved = SavedTensors(x.device, lambda w=w: [w])
        with saved.holding():
            hidden = torch.sin(x) * 1
            y = torch.sin(hidden @ w)
            hidden.detach().add_(1)
        with pytest.raises(StageInterfaceError, match=r"tensor \[5, 4\] .* changed in place"):
            input_half(y, torch.ones_like(y), [x] if needs_gradient else [], saved).run()


class _Tripled(torch.autograd.Function):
    """Does what torch forbids: writes into the gradient that it gets."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.mul_(3)


def test_a_gradient_that_was_written_to_before_the_weight_half_is_an_error() -> None:
    w = parameter(4, 4)
    left, _ = begun(Made(lambda x: _Tripled.apply(x.sin()) + x @ w, [w]), given())  # type: ignore[no-untyped-call]
    with pytest.raises(StageInterfaceError, match=r"tensor \[5, 4\] .* changed in place"):
        left.run()


def test_checkpointing_that_calls_backward_by_itself_is_an_error_of_torchs() -> None:
    layer = nn.Linear(4, 4).to(DTYPE)
    made = Made(lambda x: torch.sin(checkpoint(layer, x, use_reentrant=True)), list(layer.parameters()))
    with pytest.raises(RuntimeError, match="use_reentrant=True"):
        begun(made, given())
