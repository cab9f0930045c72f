"""Functions of tensors with parameters: a backward graph of every kind that layers make."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

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
