"""Shows where saved tensors are at each time: here, dropped and made again in the same way, or on the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
import torch
from torch import nn

from trainer_agent.errors import StageInterfaceError
from trainer_agent.halves import input_half
from trainer_agent.holding import SavedTensors
from trainer_agent.offloading import offloaded_alone
from trainer_agent.saved import Saved, storages

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer_agent.stages import StageTask

TASK = cast("StageTask", None)


class _Block(nn.Module):
    """Has dropout, counts its runs, and calls what a test puts in."""

    def __init__(self, then: Callable[[torch.Tensor], torch.Tensor] = torch.sin) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(6, 12), nn.Linear(12, 6)
        self.dropout = nn.Dropout(0.4)
        self.then = then
        self.runs = self.ends = 0

    def forward(self, x: torch.Tensor, task: StageTask) -> torch.Tensor:
        self.runs += 1
        self.hidden = self.then(self.dropout(torch.tanh(self.up(x))))
        y = x + self.down(self.hidden)
        self.ends += 1
        return y


def given() -> torch.Tensor:
    return torch.randn(7, 6, generator=torch.Generator().manual_seed(1)).requires_grad_()


def held_bytes(saved: SavedTensors, block: nn.Module) -> int:
    own = storages(block.parameters())
    return sum(size for storage, size in storages(saved.tensors()).items() if storage not in own)


def run(block: _Block, way: str, saved: SavedTensors, x: torch.Tensor) -> torch.Tensor:
    """Run the block in one of the ways, as a chunk does."""
    torch.manual_seed(9)
    with saved.holding():
        if way == "recompute":
            return saved.recomputed(block, x, TASK)
        if way == "offload":
            with saved.offloaded():
                return cast("torch.Tensor", block(x, TASK))
        return cast("torch.Tensor", block(x, TASK))


def gradients(way: str, block: _Block) -> list[torch.Tensor]:
    block.zero_grad()
    saved, x = SavedTensors(torch.device("cpu"), block.parameters), given()
    y = run(block, way, saved, x)
    torch.manual_seed(77)
    saved.restore()
    input_half(y, torch.ones_like(y), [x], saved).run()
    saved.release()
    return [cast("torch.Tensor", tensor.grad) for tensor in (x, *block.parameters())]


@pytest.mark.parametrize("way", ["recompute", "offload"])
def test_halves_of_a_lean_layer_give_the_gradients_of_a_stored_one(way: str) -> None:
    block = _Block()
    for one, other in zip(gradients(way, block), gradients("store", block), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("way", ["recompute", "offload"])
def test_a_lean_layer_holds_next_to_nothing_until_it_is_restored(way: str) -> None:
    block = _Block()
    saved = SavedTensors(torch.device("cpu"), block.parameters)
    stored = SavedTensors(torch.device("cpu"), block.parameters)
    y = [run(block, way, saved, given()), run(block, "store", stored, given())]
    assert held_bytes(saved, block) == 0 < held_bytes(stored, block)
    saved.restore()
    assert held_bytes(saved, block) >= held_bytes(stored, block)
    assert torch.equal(*y)


def test_a_layer_is_recomputed_once_for_both_halves_and_no_further_than_needed() -> None:
    block = _Block()
    gradients("recompute", block)
    assert (block.runs, block.ends) == (2, 1)


def test_random_numbers_go_on_as_if_nothing_had_been_recomputed() -> None:
    block = _Block()
    saved = SavedTensors(torch.device("cpu"), block.parameters)
    kept = run(block, "recompute", saved, given())
    torch.manual_seed(3)
    wanted = torch.rand(3)
    torch.manual_seed(3)
    saved.restore()
    assert torch.equal(torch.rand(3), wanted)
    assert kept.requires_grad


def alternating() -> Callable[[torch.Tensor], torch.Tensor]:
    """Other operations every second time."""
    calls = []

    def call(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return torch.sin(x) if len(calls) % 2 else x + 0

    return call


def growing() -> Callable[[torch.Tensor], torch.Tensor]:
    """Another shape every time."""
    calls = []

    def call(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return torch.cat([x, torch.zeros(len(calls), x.shape[1])]).sin()[: len(x)]

    return call


class _Task:
    chunk = "language.0"


@pytest.mark.parametrize(("make", "said"), [(alternating, "tensors less|a tensor"), (growing, "language.0: a layer")])
def test_a_layer_that_does_something_else_when_it_is_recomputed_is_an_error(
    make: Callable[[], Callable[[torch.Tensor], torch.Tensor]], said: str
) -> None:
    block = _Block(make())
    saved = SavedTensors(torch.device("cpu"), block.parameters)
    with saved.holding():
        y = saved.recomputed(block, given(), cast("StageTask", _Task()))
    with pytest.raises(StageInterfaceError, match=said):
        saved.restore()
    assert y.requires_grad


def test_an_input_that_was_written_to_is_an_error_when_it_is_recomputed() -> None:
    block, x = _Block(), given()
    saved = SavedTensors(torch.device("cpu"), block.parameters)
    y = run(block, "recompute", saved, x)
    x.detach().add_(1)
    with pytest.raises(StageInterfaceError, match="changed in place"):
        saved.restore()
    assert y.requires_grad


def with_a_backward_inside(x: torch.Tensor) -> torch.Tensor:
    """As of a layer that follows the gradient of an energy."""
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad((leaf**3).sum(), leaf)
    return x * slope


def test_a_layer_that_runs_a_backward_of_its_own_may_be_offloaded_and_says_so_where_it_is_recomputed() -> None:
    block = _Block(with_a_backward_inside)
    for one, other in zip(gradients("offload", block), gradients("store", block), strict=True):
        assert torch.equal(one, other)
    with pytest.raises(StageInterfaceError, match="a backward inside of its forward cannot be recomputed"):
        gradients("recompute", block)


def test_what_is_away_cannot_be_used() -> None:
    saved = Saved()
    with pytest.raises(StageInterfaceError, match="not held yet"):
        saved.get()
    saved.put(torch.zeros(1))
    saved.release()
    with pytest.raises(StageInterfaceError, match="not held any more"):
        saved.get()


def test_offload_for_a_whole_backward_copies_all_but_parameters_and_gives_the_same_gradients() -> None:
    found = []
    for offload in (True, False):
        block, x = _Block(), given()
        block.load_state_dict({name: torch.full_like(p, 0.1) for name, p in block.state_dict().items()})
        torch.manual_seed(9)
        if offload:
            with offloaded_alone(block.parameters()):
                y = block(x, TASK)
            node = y.grad_fn.next_functions[1][0]
            assert node._saved_mat2.data_ptr() == block.down.weight.data_ptr()
            assert node._saved_mat1.data_ptr() != block.hidden.data_ptr()
        else:
            y = block(x, TASK)
        y.backward(torch.ones_like(y))
        found.append([tensor.grad for tensor in (x, *block.parameters())])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)
