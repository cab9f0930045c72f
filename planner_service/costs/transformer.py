"""The shape of a transformer layer: what its weights, products and activations count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from dip.validation.limits import MAX_LAYERS

from planner_service.costs.checks import require, require_range

_MAX_WIDTH = 2**20
PLAIN, GATED = 2, 3
"""Matrices of an MLP: up and down, or gate, up and down."""


class Product(NamedTuple):
    """A matrix product of one GPU: each unit's ``inner`` numbers become ``outer`` ones."""

    inner: float
    outer: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Transformer:
    """Identical transformer layers: attention and an MLP, each after a normalization and added to its input.

    Biases and the weights of normalizations are left out: they are small beside the matrices.

    Parameters
    ----------
    layers
        How many.
    width
        Numbers of one unit between layers (hidden size).
    mlp_width
        Numbers of one unit inside the MLP.
    heads, groups
        Heads of queries; heads of keys and values, 0: as many. ``groups`` divides ``heads``.
    mlp_matrices
        2: up and down; 3: gate, up and down.
    causal
        Whether a unit attends only to those before it.
    head_width
        Numbers of one head; 0: ``width / heads``, which must be whole.

    Raises
    ------
    ValueError
        Where a value is out of range or does not go with another.
    """

    layers: int
    width: int
    mlp_width: int
    heads: int
    groups: int = 0
    mlp_matrices: int = GATED
    causal: bool = False
    head_width: int = 0

    def __post_init__(self) -> None:
        require_range("layers", self.layers, 1, MAX_LAYERS)
        for field in ("width", "mlp_width", "heads"):
            require_range(field, getattr(self, field), 1, _MAX_WIDTH)
        for field in ("groups", "head_width"):
            require_range(field, getattr(self, field), 0, _MAX_WIDTH)
        allowed = f"{PLAIN} (up, down) or {GATED} (gate, up, down)"
        require("mlp_matrices", self.mlp_matrices, allowed, when=self.mlp_matrices in (PLAIN, GATED))
        if not self.head_width:
            allowed = f"a divisor of width {self.width}, or head_width given"
            require("heads", self.heads, allowed, when=self.width % self.heads == 0)
        allowed = f"at most {_MAX_WIDTH:,} in all heads together"
        require("head_width", self.head_width, allowed, when=self.heads * self.head_width <= _MAX_WIDTH)
        if self.groups:
            require("groups", self.groups, f"a divisor of heads {self.heads}", when=self.heads % self.groups == 0)

    def check_parallel(self, tensor_parallel: int) -> None:
        """Raise a ValueError where the layer cannot be cut for so many GPUs."""
        cut = f"a multiple of tensor_parallel {tensor_parallel}"
        require("heads", self.heads, cut, when=self.heads % tensor_parallel == 0)
        require("mlp_width", self.mlp_width, cut, when=self.mlp_width % tensor_parallel == 0)
        groups = self.key_heads
        fits = groups % tensor_parallel == 0 or tensor_parallel % groups == 0
        require("groups", groups, f"{cut}, or a divisor of it", when=fits)

    @property
    def key_heads(self) -> int:
        """Heads of keys, and as many of values."""
        return self.groups or self.heads

    @property
    def query_width(self) -> int:
        """Numbers of all heads of queries together."""
        return self.heads * (self.head_width or self.width // self.heads)

    @property
    def key_width(self) -> int:
        """Numbers of all heads of keys together, and of values."""
        return self.query_width // self.heads * self.key_heads


@dataclass(frozen=True, kw_only=True, slots=True)
class Shard:
    """What one GPU has of a layer under tensor and sequence parallelism (Korthikanti et al., arXiv 2205.05198).

    Heads and the MLP are cut by columns, what lies between them by units; a head of keys that several GPUs need is on
    each of them.

    Parameters
    ----------
    layer
        The whole layer, which can be cut so.
    gpus
        Tensor parallelism.
    """

    layer: Transformer
    gpus: int

    @property
    def queries(self) -> float:
        """Numbers of the queries of one unit; as many of the attention's result."""
        return self.layer.query_width / self.gpus

    @property
    def keys(self) -> float:
        """Numbers of the keys of one unit; as many of the values."""
        layer = self.layer
        return layer.key_width / layer.key_heads * max(1.0, layer.key_heads / self.gpus)

    @property
    def mlp(self) -> float:
        """Numbers of one unit inside the MLP."""
        return self.layer.mlp_width / self.gpus

    @property
    def between(self) -> float:
        """Numbers of one unit between attention and MLP, where units are spread over the GPUs."""
        return self.layer.width / self.gpus

    @property
    def products(self) -> tuple[Product, ...]:
        """Products of one forward: queries with keys and values, the attention's result, into the MLP, out of it."""
        width = self.layer.width
        return (
            Product(width, self.queries + 2 * self.keys),
            Product(self.queries, width),
            Product(width, (self.layer.mlp_matrices - 1) * self.mlp),
            Product(self.mlp, width),
        )

    @property
    def weights(self) -> float:
        """Weights on the GPU."""
        return sum(inner * outer for inner, outer in self.products)

    def kept_numbers(self, *, frozen: bool) -> float:
        """Numbers of one unit that a backward needs: 2 bytes each in bf16.

        Inputs of both normalizations, queries, keys, values and the attention's result, and what the activation of the
        MLP takes; where weights are trained also the inputs of the products: those of attention and MLP, and the
        activation's result. For the layers of GPT this is Korthikanti et al.'s 34 bytes for each unit and number of
        the width (equation 2) without dropout's masks and without the squared part, which flash attention avoids.
        """
        attention = 2 * self.queries + 2 * self.keys
        activated = (self.layer.mlp_matrices - 1) * self.mlp
        inputs = 0.0 if frozen else 2 * self.between + self.mlp
        return 2 * self.between + attention + activated + inputs
