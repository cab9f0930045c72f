"""Shows that a layer's weights and activations are those that papers count, and which shapes are refused."""

from __future__ import annotations

from typing import Any

import pytest

from planner_service.costs.transformer import Shard, Transformer

LLAMA3_8B: dict[str, Any] = {"layers": 32, "width": 4096, "mlp_width": 14_336, "heads": 32, "groups": 8}
GPT3: dict[str, Any] = {"layers": 96, "width": 12_288, "mlp_width": 49_152, "heads": 96, "mlp_matrices": 2}


def test_weights_are_those_of_published_models() -> None:
    # Llama 3 8B: 8.03e9 weights, of which 2 x 128,256 x 4096 are embeddings; GPT-3: 12 x width^2 a layer
    weights = 32 * Shard(layer=Transformer(**LLAMA3_8B), gpus=1).weights
    assert weights + 2 * 128_256 * 4096 == pytest.approx(8.03e9, rel=1e-3)
    assert Shard(layer=Transformer(**GPT3), gpus=1).weights == 12 * 12_288**2


@pytest.mark.parametrize("gpus", [1, 2, 4, 8])
def test_gpus_share_a_layer(gpus: int) -> None:
    whole, part = (Shard(layer=Transformer(**LLAMA3_8B), gpus=n) for n in (1, gpus))
    assert part.weights * gpus == whole.weights
    assert part.kept_numbers(frozen=False) * gpus == whole.kept_numbers(frozen=False)


def test_a_head_of_keys_that_several_gpus_need_is_on_each() -> None:
    layer = Transformer(**{**LLAMA3_8B, "groups": 2})
    assert Shard(layer=layer, gpus=2).keys == 128
    assert Shard(layer=layer, gpus=8).keys == 128


def test_activations_of_gpt_are_the_34_bytes_of_korthikanti_without_dropout() -> None:
    # 34 bytes for each unit and number of the width, of which two are masks of dropout
    assert 2 * Shard(layer=Transformer(**GPT3), gpus=1).kept_numbers(frozen=False) == 32 * 12_288
    assert 2 * Shard(layer=Transformer(**GPT3), gpus=8).kept_numbers(frozen=False) == 4 * 12_288


def test_frozen_layers_keep_no_inputs_of_products() -> None:
    shard = Shard(layer=Transformer(**GPT3), gpus=1)
    inputs = 2 * 12_288 + 49_152  # of attention, of the MLP, of its second product
    assert shard.kept_numbers(frozen=False) - shard.kept_numbers(frozen=True) == inputs


def test_heads_wider_than_their_part_of_the_width() -> None:
    layer = Transformer(layers=1, width=5120, mlp_width=1024, heads=24, groups=8, head_width=128)
    assert (layer.query_width, layer.key_width) == (3072, 1024)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"layers": 0}, "layers is 0, must be from 1 to 10,000"),
        ({"width": -4096}, "width is -4096, must be from 1"),
        ({"width": 2**40}, "width is 1099511627776, must be from 1"),
        ({"mlp_matrices": 4}, "mlp_matrices is 4, must be 2 (up, down) or 3 (gate, up, down)"),
        ({"heads": 30}, "heads is 30, must be a divisor of width 4096, or head_width given"),
        ({"groups": 5}, "groups is 5, must be a divisor of heads 32"),
        ({"groups": 64}, "groups is 64, must be a divisor of heads 32"),
        ({"head_width": -1}, "head_width is -1, must be from 0"),
    ],
)
def test_shapes_that_cannot_be(change: dict[str, int], says: str) -> None:
    with pytest.raises(ValueError, match=r"must be") as raised:
        Transformer(**{**LLAMA3_8B, **change})
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("change", "gpus", "says"),
    [
        ({}, 3, "heads is 32, must be a multiple of tensor_parallel 3"),
        ({"mlp_width": 14_338}, 4, "mlp_width is 14338, must be a multiple of tensor_parallel 4"),
        ({"heads": 48, "groups": 6, "head_width": 128}, 4, "groups is 6, must be a multiple of tensor_parallel 4, or"),
    ],
)
def test_shapes_that_cannot_be_cut(change: dict[str, int], gpus: int, says: str) -> None:
    with pytest.raises(ValueError, match=r"must be") as raised:
        Transformer(**{**LLAMA3_8B, **change}).check_parallel(gpus)
    assert says in str(raised.value)
