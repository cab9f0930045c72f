"""Shows on random graphs that halves give the whole's gradients: parameters shared anywhere, inputs used or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer_agent.halves import input_half
from trainer_agent.holding import SavedTensors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

DTYPE = torch.float64
ROWS, WIDTH = 3, 4
Tensors = list[torch.Tensor]


def _written(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    made = x * 1
    made[:, 1:] += y[:, 1:]
    return made


def _crossed(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    (a, b), (c, _) = torch.chunk(x, 2, 1), torch.unbind(y.reshape(ROWS, 2, 2).transpose(0, 1), 0)
    return torch.cat([b * c, a], 1)


def _hooked(x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    made = torch.sin(x)
    if made.requires_grad:
        made.register_hook(lambda gradient: gradient * 0.5 + 1)
    return made


OPERATIONS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": torch.add,
    "multiply": torch.mul,
    "tanh": lambda x, _: torch.tanh(x),
    "softmax": lambda x, y: torch.softmax(x, 1) * y,
    "norm": lambda x, _: torch.nn.functional.layer_norm(x, [WIDTH]),
    "attend": lambda x, y: torch.softmax(x @ y.t(), 1) @ y,
    "written": _written,
    "crossed": _crossed,
    "hooked": _hooked,
    "cut": lambda x, y: x.detach() + y,
}
WITH_PARAMETER: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "product": lambda x, w: x @ w,
    "transposed": lambda x, w: torch.tanh(x) @ w.t(),
    "scaled": lambda x, w: x * w[0],
    "normalised": lambda x, w: x @ (w / (1 + w.norm())),
    "biased": lambda x, w: torch.nn.functional.linear(x, w, w[1]),
    "looked up": lambda x, w: x + torch.nn.functional.embedding(torch.tensor([0, 2, 2]), w),
}

drawn_steps = st.lists(
    st.tuples(
        st.sampled_from([*OPERATIONS, *WITH_PARAMETER, *WITH_PARAMETER]),
        st.integers(0, 99),
        st.integers(0, 99),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=16,
)


def run(steps: Sequence[tuple[str, int, int, int]], inputs: Tensors, parameters: Tensors) -> torch.Tensor:
    """Each step takes what others made, and makes one tensor; the last few are added up."""
    made = list(inputs)
    for name, first, second, which in steps:
        x = made[-1 - first % len(made)]
        if name in OPERATIONS:
            made.append(OPERATIONS[name](x, made[-1 - second % len(made)]))
        else:
            made.append(WITH_PARAMETER[name](x, parameters[which]))
    return torch.stack(made[-3:]).sum(0)


def leaves(count: int, shape: tuple[int, int], needed: Sequence[bool], seed: int) -> Tensors:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=DTYPE).requires_grad_(needed[n]) for n in range(count)]


@settings(max_examples=250, deadline=None)
@given(
    steps=drawn_steps,
    inputs_need=st.lists(st.booleans(), min_size=2, max_size=2),
    parameters_need=st.lists(st.sampled_from([True, True, True, False]), min_size=4, max_size=4),
    seed=st.integers(0, 9),
)
def test_halves_of_any_graph(
    steps: list[tuple[str, int, int, int]], inputs_need: list[bool], parameters_need: list[bool], seed: int
) -> None:
    def fresh() -> tuple[Tensors, Tensors]:
        inputs = leaves(2, (ROWS, WIDTH), inputs_need, seed)
        return inputs, leaves(4, (WIDTH, WIDTH), parameters_need, seed + 100)

    inputs, parameters = fresh()
    output = run(steps, inputs, parameters)
    if not output.requires_grad:
        return
    gradient = torch.cos(output.detach())
    output.backward(gradient)
    wanted = [leaf.grad for leaf in (*inputs, *parameters)]

    inputs, parameters = fresh()
    saved = SavedTensors(torch.device("cpu"), lambda: parameters)
    with saved.holding():
        output = run(steps, inputs, parameters)
    left = input_half(output, gradient, [leaf for leaf in inputs if leaf.requires_grad], saved)
    for leaf, other in zip(inputs, wanted, strict=False):
        _assert_same(leaf.grad, other)
    del output
    left.run()
    saved.release()
    for leaf, other in zip((*inputs, *parameters), wanted, strict=True):
        _assert_same(leaf.grad, other)


def _assert_same(found: torch.Tensor | None, wanted: torch.Tensor | None) -> None:
    assert (found is None) == (wanted is None)
    if found is not None and wanted is not None:
        scale = float(wanted.abs().max()) or 1.0
        assert float((found - wanted).abs().max()) <= 1e-9 * scale
