"""The model set-ups of the DIP paper and what their layers cost on an H800.

Architectures, parallelism and packing are the paper's tables; costs are a roofline of its GPU under its tensor
parallelism. The messages are built as the JSON mapping of the contract.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]

PEAK_FLOP_PER_US = 989e12 / 1e6
"""Dense bf16 of one H800."""
REACHED_SHARE = 0.6
"""What large products reach of it."""
NVLINK_BYTES_PER_US = 200e9 / 1e6
GPU_BYTES = 80e9
USABLE_SHARE = 0.92
LAUNCH_US = 60.0
"""Fixed cost of one layer's forward: launches, and the latency of its collectives."""
LINK_LATENCY_US = 12
LINK_BYTES_PER_US = 22_000
MEASURED_UNITS = (256, 1024, 4096, 16_384, 65_536, 262_144)

PATCHES_PER_IMAGE = 2704
TOKENS_PER_IMAGE = 169
"""Language tokens that an image's merged patches become."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Architecture:
    """A transformer: ``groups`` are heads of keys and values, ``matrices`` those of one MLP."""

    layers: int
    width: int
    mlp_width: int
    heads: int
    groups: int
    matrices: int
    causal: bool

    @property
    def layer_weights(self) -> float:
        """Weights of one layer."""
        attention = self.width * self.width * (2 + 2 * self.groups / self.heads)
        return attention + self.matrices * self.width * self.mlp_width


VIT_5B = Architecture(layers=63, width=1792, mlp_width=15_360, heads=16, groups=16, matrices=2, causal=False)
VIT_22B = Architecture(layers=48, width=6144, mlp_width=24_576, heads=48, groups=48, matrices=2, causal=False)
LLAMA3_8B = Architecture(layers=32, width=4096, mlp_width=14_336, heads=32, groups=8, matrices=3, causal=True)
QWEN2_32B = Architecture(layers=64, width=5120, mlp_width=27_648, heads=40, groups=8, matrices=3, causal=True)
QWEN2_72B = Architecture(layers=80, width=8192, mlp_width=29_568, heads=64, groups=8, matrices=3, causal=True)
DIT_5B = Architecture(layers=28, width=3584, mlp_width=10_240, heads=28, groups=28, matrices=3, causal=False)
DIT_30B = Architecture(layers=48, width=6144, mlp_width=24_576, heads=48, groups=48, matrices=3, causal=False)
GPT_175B = Architecture(layers=96, width=12_288, mlp_width=49_152, heads=96, groups=96, matrices=2, causal=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """Modules in order, each the input of the next, on pipeline ranks of ``tensor_parallel`` GPUs."""

    modules: tuple[tuple[str, Architecture], ...]
    tensor_parallel: int
    ranks: int


def _vlm(encoder: Architecture, language: Architecture, tensor_parallel: int, ranks: int) -> Setup:
    modules = (("vision", encoder), ("language", language))
    return Setup(modules=modules, tensor_parallel=tensor_parallel, ranks=ranks)


def _t2v(language: Architecture, decoder: Architecture, tensor_parallel: int, ranks: int) -> Setup:
    modules = (("language", language), ("video", decoder))
    return Setup(modules=modules, tensor_parallel=tensor_parallel, ranks=ranks)


SETUPS = {
    "vlm-s": _vlm(VIT_5B, LLAMA3_8B, 4, 4),
    "vlm-m": _vlm(VIT_5B, QWEN2_32B, 8, 4),
    "vlm-l": _vlm(VIT_22B, QWEN2_72B, 8, 8),
    "t2v-s": _t2v(LLAMA3_8B, DIT_5B, 4, 4),
    "t2v-l": _t2v(QWEN2_32B, DIT_30B, 8, 8),
    "vlm-xl-8": _vlm(VIT_22B, GPT_175B, 8, 8),
    "vlm-xl-16": _vlm(VIT_22B, GPT_175B, 8, 16),
    "t2v-xl-4": _t2v(QWEN2_72B, DIT_30B, 8, 4),
    "t2v-xl-8": _t2v(QWEN2_72B, DIT_30B, 8, 8),
}
"""By name; the number in a large one's name is that of its pipeline ranks."""


def job(setup: Setup) -> Json:
    """Return the JobSpec of a set-up."""
    modules = [_module(setup, place) for place in range(len(setup.modules))]
    cluster = {
        "ranks": setup.ranks,
        "memory_bytes": [int(GPU_BYTES * USABLE_SHARE)],
        "link_latency_us": LINK_LATENCY_US,
        "link_bytes_per_us": LINK_BYTES_PER_US,
    }
    return {"model": {"modules": modules}, "cluster": cluster}


def _module(setup: Setup, place: int) -> Json:
    (name, architecture), tensor_parallel = setup.modules[place], setup.tensor_parallel
    # weights, gradients and optimizer state: 18 bytes a weight
    static_bytes = int(18 * architecture.layer_weights / tensor_parallel)
    run = {
        "count": architecture.layers,
        "cost": _layer_cost(architecture, tensor_parallel),
        "static_bytes": static_bytes,
    }
    module: Json = {
        "name": name,
        "inputs": [setup.modules[place - 1][0]] if place else [],
        "layers": [run],
        "output_bytes_per_unit": 2 * architecture.width // tensor_parallel,
    }
    if name == "vision":
        # merged patches, projected to the language model's width
        width = setup.modules[place + 1][1].width
        merged = 2 * width * TOKENS_PER_IMAGE / PATCHES_PER_IMAGE / tensor_parallel
        module["result_bytes_per_unit"] = math.ceil(merged)
    return module


def _layer_cost(architecture: Architecture, tensor_parallel: int) -> Json:
    """Roofline of one layer: products, the exchange of tensor parallelism, attention, and launches."""
    flop_per_us = tensor_parallel * PEAK_FLOP_PER_US * REACHED_SHARE
    attention_us = 4 * architecture.width * (0.5 if architecture.causal else 1.0) / flop_per_us
    store = [_store_point(architecture, tensor_parallel, flop_per_us, units) for units in MEASURED_UNITS]
    recompute = [_recompute_point(architecture, tensor_parallel, point) for point in store]
    recompute_attention = {"forward_us": attention_us, "backward_input_us": 3 * attention_us}
    return {
        "points": store,
        "attention": {"forward_us": attention_us, "backward_input_us": 2 * attention_us},
        "strategies": [{"name": "recompute", "points": recompute, "attention": recompute_attention}],
    }


def _store_point(architecture: Architecture, tensor_parallel: int, flop_per_us: float, units: int) -> Json:
    product_us = 2 * architecture.layer_weights * units / flop_per_us
    exchanged = 2 * 2 * units * architecture.width * 2 * (tensor_parallel - 1) / tensor_parallel
    forward_us = round(LAUNCH_US + product_us + exchanged / NVLINK_BYTES_PER_US, 3)
    return {
        "units": units,
        "forward_us": forward_us,
        "backward_input_us": forward_us,
        "backward_weight_us": round(LAUNCH_US / 2 + product_us, 3),
        "activation_bytes": int(34 * architecture.width * units / tensor_parallel),
    }


def _recompute_point(architecture: Architecture, tensor_parallel: int, store: Json) -> Json:
    """Return the forward once more at the start of the backward, which then holds everything until its end."""
    return {
        **store,
        "backward_input_us": 2 * store["forward_us"],
        "activation_bytes": int(2 * architecture.width * store["units"] / tensor_parallel),
        "split_activation_bytes": store["activation_bytes"],
    }
