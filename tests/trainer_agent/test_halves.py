"""Shows that two halves of a backward give what the whole gives, on graphs of every kind, and what they hold."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from trainer_agent.errors import StageInterfaceError
from trainer_agent.halves import WeightHalf, input_half
from trainer_agent.holding import SavedTensors
from trainer_agent.saved import storages

DTYPE = torch.float64
Function = Callable[..., torch.Tensor]


def parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(*shape, dtype=DTYPE))


@dataclass
class Made:
    """A function of some tensors, and its parameters."""

    run: Function
    parameters: Sequence[nn.Parameter]


def mlp() -> Made:
    layers = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 8), nn.GELU(), nn.Dropout(0.3), nn.Linear(8, 4)).to(DTYPE)
    return Made(lambda x: x + layers(x), list(layers.parameters()))


def attention() -> Made:
    layers = nn.ModuleList(nn.TransformerEncoderLayer(4, 2, 8, 0.2, batch_first=True) for _ in range(2)).to(DTYPE)
    return Made(lambda x: layers[1](layers[0](x[None]))[0], list(layers.parameters()))


def used_twice_in_a_row() -> Made:
    w = parameter(4, 4)
    return Made(lambda x: x @ w @ w, [w])


def used_around_another() -> Made:
    """The way from one use of ``w`` to the other leads through what belongs to ``v``."""
    w, v, u = parameter(4, 4), parameter(4, 4), parameter(4, 4)
    return Made(lambda x: torch.tanh(torch.tanh(torch.tanh(x @ w @ w) @ v @ u) @ w) @ v, [w, v, u])


def computed_weight() -> Made:
    w, scale = parameter(4, 4), parameter(4)

    def run(x: torch.Tensor) -> torch.Tensor:
        weight = w / w.norm() * scale
        return torch.sin(torch.sin(x @ weight) @ weight.t())

    return Made(run, [w, scale])


def several_outputs() -> Made:
    w, v = parameter(4, 4), parameter(2, 2)

    def run(x: torch.Tensor) -> torch.Tensor:
        a, b = torch.chunk(x @ w, 2, 1)
        c, d = torch.unbind(x.reshape(2, 5, 2) * 1, 0)
        return torch.cat([a @ v, b + c, d], 1)

    return Made(run, [w, v])


def hook_of_an_activation() -> Made:
    w = parameter(4, 4)

    def run(x: torch.Tensor) -> torch.Tensor:
        hidden = x @ w
        hidden.register_hook(lambda gradient: gradient * 0.5)
        return torch.sin(hidden)

    return Made(run, [w])


def written_in_place() -> Made:
    w = parameter(4, 4)

    def run(x: torch.Tensor) -> torch.Tensor:
        hidden = (x @ w).add_(1).relu_() * 1
        hidden[0] = hidden[1] * 2
        return hidden @ w

    return Made(run, [w])


def without_the_input() -> Made:
    """Some parameters never meet the input."""
    w, bias, table = parameter(4, 4), parameter(5, 4), parameter(10, 4)
    ids = torch.tensor([1, 2, 3, 3, 2])
    return Made(lambda x: torch.sin(x) @ w + bias * bias + nn.functional.embedding(ids, table), [w, bias, table])


def constant_in_the_input() -> Made:
    w, v = parameter(4, 4), parameter(4, 4)
    return Made(lambda x: torch.sin(v @ v).repeat(2, 1)[:5] @ w, [w, v])


def partly_frozen() -> Made:
    w, v = parameter(4, 4), parameter(4, 4)
    v.requires_grad_(False)
    return Made(lambda x: torch.sin(torch.sin(x @ w) @ v), [w, v])


def unused_parameter() -> Made:
    w, v = parameter(4, 4), parameter(4, 4)
    return Made(lambda x: torch.sin(x @ w), [w, v])


def parameters_alone_are_input() -> Made:
    return Made(lambda x: x * 2 + x.sin(), [])


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, w = ctx.saved_tensors
        return gradient @ w.t(), x.t() @ gradient


def custom_functions() -> Made:
    w, v = parameter(4, 4), parameter(4, 4)
    return Made(lambda x: _product(_product(x, w) @ v, w), [w, v])


def custom_function_on_top() -> Made:
    w, v = parameter(4, 4), parameter(4, 4)
    return Made(lambda x: _product(x @ w, v), [w, v])


def _product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    made: torch.Tensor = _Product.apply(x, w)  # type: ignore[no-untyped-call]
    return made


def autocast() -> Made:
    """The casts of parameters are nodes of the graph, kept from one use to the next."""
    layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))

    def run(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return (layers(x.float()) + layers(2 * x.float())).to(DTYPE)

    return Made(run, list(layers.parameters()))


def full_backward_hook() -> Made:
    before, layer = nn.Linear(4, 4).to(DTYPE), nn.Linear(4, 4).to(DTYPE)
    layer.register_full_backward_hook(lambda module, inputs, outputs: (inputs[0] * 3,))
    return Made(lambda x: torch.sin(layer(layer(before(x)))), [*before.parameters(), *layer.parameters()])


def checkpointed() -> Made:
    """By the layer itself: recomputed in each half, and right."""
    layers = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.3), nn.Linear(8, 4)).to(DTYPE)
    last = nn.Linear(4, 4).to(DTYPE)

    def run(x: torch.Tensor) -> torch.Tensor:
        hidden: torch.Tensor = checkpoint(layers, torch.sin(x), use_reentrant=False)
        return last(hidden) + x

    return Made(run, [*layers.parameters(), *last.parameters()])


def checkpointed_to_the_end() -> Made:
    """What takes the inputs of the checkpointed function first is not what the weight half needs; also nested."""
    layers = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)).to(DTYPE)

    def inner(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(layers[2](checkpoint(layers[:2], x, use_reentrant=False)))

    def run(x: torch.Tensor) -> torch.Tensor:
        hidden = checkpoint(lambda x: torch.tanh(layers[0](x)), torch.sin(x), use_reentrant=False)
        return torch.tanh(checkpoint(inner, torch.sin(hidden), use_reentrant=False))

    return Made(run, list(layers.parameters()))


def checkpointed_weight() -> Made:
    """A node behind the one where the way to the parameter leaves is the checkpointed one."""
    w = parameter(5, 4)
    return Made(lambda x: torch.tanh(checkpoint(lambda x: torch.tanh(x + w.sin()), x.sin(), use_reentrant=False)), [w])


def one_checkpointed_layer() -> Made:
    layers = nn.Sequential(nn.Linear(4, 4), nn.Tanh()).to(DTYPE)
    return Made(lambda x: checkpoint(layers, torch.sin(x), use_reentrant=False), list(layers.parameters()))


def batch_norm() -> Made:
    norm, layer = nn.BatchNorm1d(4).to(DTYPE), nn.Linear(4, 4).to(DTYPE)
    return Made(lambda x: layer(norm(layer(x))), [*norm.parameters(), *layer.parameters()])


def weight_norm() -> Made:
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)).to(DTYPE)
    return Made(lambda x: layer(torch.tanh(layer(x))), list(layer.parameters()))


def recurrent() -> Made:
    layer = nn.GRU(4, 4, 2).to(DTYPE)
    return Made(lambda x: layer(x)[0], list(layer.parameters()))


def experts() -> Made:
    """One of which gets nothing."""
    layers, gate = nn.ModuleList(nn.Linear(4, 4) for _ in range(3)).to(DTYPE), nn.Linear(4, 2).to(DTYPE)

    def run(x: torch.Tensor) -> torch.Tensor:
        scores, made = gate(x).softmax(1), torch.zeros_like(x)
        for number in range(2):
            (rows,) = torch.where(scores.argmax(1) == number)
            made = made.index_add(0, rows, layers[number](x[rows]) * scores[rows, number, None])
        return made

    return Made(run, [*layers.parameters(), *gate.parameters()])


GRAPHS = [
    mlp,
    attention,
    used_twice_in_a_row,
    used_around_another,
    computed_weight,
    several_outputs,
    hook_of_an_activation,
    written_in_place,
    without_the_input,
    constant_in_the_input,
    partly_frozen,
    unused_parameter,
    parameters_alone_are_input,
    custom_functions,
    custom_function_on_top,
    autocast,
    full_backward_hook,
    checkpointed,
    checkpointed_to_the_end,
    checkpointed_weight,
    one_checkpointed_layer,
    batch_norm,
    weight_norm,
    recurrent,
    experts,
]


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
