"""What splitting a backward costs: input half and weight half of a chunk of transformer layers against the whole.

``python -m benchmarks.split_backward`` prints JSON. Times are CPU times of one thread, medians over repeats that take
turns, so that what else the machine does touches all of them alike. ``naive_*`` is what asking autograd twice takes,
``torch_*`` what the functions of ``torch.distributed.pipelining`` take.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight

from trainer_agent.halves import input_half
from trainer_agent.holding import SavedTensors
from trainer_agent.saved import storages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


class Block(nn.Module):
    """A transformer layer: norm, attention, norm, MLP, each with its residual."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Run on one sequence, ``[units, width]``."""
        units, width = x.shape
        heads = self.qkv(self.norms[0](x)).view(1, units, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        query, key, value = heads.unbind(0)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(units, width))
        hidden: torch.Tensor = self.down(nn.functional.gelu(self.up(self.norms[1](x))))
        return x + hidden


class Chunk:
    """Some layers, and the ways to run them backward."""

    def __init__(self, *, layers: int, width: int, heads: int, units: int) -> None:
        self._layers = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self._given = torch.randn(units, width)
        self._gradient = torch.randn(units, width)

    def whole(self) -> dict[str, float]:
        """Run an ordinary backward."""
        y = self._layers(self._given.clone().requires_grad_())
        return {"whole_us": _taken_us(lambda: y.backward(self._gradient))}

    def halves(self) -> dict[str, float]:
        """Run both halves; also counts what is held before and between them."""
        x = self._given.clone().requires_grad_()
        saved = SavedTensors(x.device, self._layers.parameters)
        with saved.holding():
            y = self._layers(x)
        before = self._held_bytes(saved.tensors())
        left = []
        first = _taken_us(lambda: left.append(input_half(y, self._gradient, [x], saved)))
        between = self._held_bytes([*saved.tensors(), *left[0].tensors()])
        second = _taken_us(left[0].run)
        return {"input_us": first, "weight_us": second, "before_bytes": before, "between_bytes": between}

    def naive(self) -> dict[str, float]:
        """Ask autograd twice."""
        x = self._given.clone().requires_grad_()
        y = self._layers(x)
        weights = list(self._layers.parameters())
        return {
            "naive_input_us": _taken_us(lambda: torch.autograd.grad(y, [x], self._gradient, retain_graph=True)),
            "naive_weight_us": _taken_us(lambda: torch.autograd.grad(y, weights, self._gradient)),
        }

    def torchs(self) -> dict[str, float]:
        """Run both halves as torch's own pipelining does."""
        x = self._given.clone().requires_grad_()
        y = self._layers(x)
        groups: list[dict[str, Any]] = []

        def first() -> None:
            groups.extend(stage_backward_input([y], [self._gradient], [x], self._layers.parameters())[1])

        return {
            "torch_input_us": _taken_us(first),
            "torch_weight_us": _taken_us(lambda: stage_backward_weight(self._layers.parameters(), groups)),
        }

    def _held_bytes(self, tensors: Iterable[torch.Tensor]) -> int:
        own = storages(self._layers.parameters())
        return sum(size for storage, size in storages(tensors).items() if storage not in own)


def _taken_us(call: Callable[[], object]) -> float:
    start = time.thread_time_ns()
    call()
    return (time.thread_time_ns() - start) / 1000


def measure(chunk: Chunk, repeats: int) -> dict[str, float]:
    """Medians of all figures, after one round to warm up."""
    rounds = [chunk.whole() | chunk.halves() | chunk.naive() | chunk.torchs() for _ in range(repeats + 1)][1:]
    found = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
    for kind, prefix in (("halves", ""), ("naive", "naive_"), ("torch", "torch_")):
        both = found[f"{prefix}input_us"] + found[f"{prefix}weight_us"]
        found[f"{kind}_over_whole"] = both / found["whole_us"]
    found["between_over_before"] = found["between_bytes"] / found["before_bytes"]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.split_backward", description=__doc__)
    for name, default in (("layers", 4), ("width", 384), ("heads", 6), ("units", 512), ("repeats", 15)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    chunk = Chunk(layers=options.layers, width=options.width, heads=options.heads, units=options.units)
    print(json.dumps(vars(options) | measure(chunk, options.repeats), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
