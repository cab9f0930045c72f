"""What a transformer layer costs on a GPU, from its shape alone: the table that the contract calls LayerCost.

The part that grows with the square of an instance is flash attention's arithmetic; all else is a sum of operators (see
:mod:`planner_service.costs.operators`), tabulated. docs/costs.md states every formula.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dip.planner.v1 import planner_pb2 as pb

from planner_service.costs.operators import Operator
from planner_service.costs.strategies import offload, recompute
from planner_service.costs.transformer import GATED, Shard

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner_service.costs.operators import Device

BF16, FP32 = 2, 4
"""Bytes of one number."""

POINTS = tuple(2**i for i in range(4, 19))
"""Sizes of the table, in units; its lines go on along the last two."""

BACKWARD_ATTENTION = 2.5
"""Flash attention's backward over its forward: five products for two (Dao, arXiv 2307.08691, section 4.1)."""

RECOMPUTE, OFFLOAD = "recompute", "offload"
STRATEGIES = (RECOMPUTE, OFFLOAD)
"""Ways to run a layer that the roofline knows, besides storing everything."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Passes:
    """Operators of each pass of a layer; those of a pass run one after another."""

    forward: Sequence[Operator]
    backward_input: Sequence[Operator]
    backward_weight: Sequence[Operator]


def layer_cost(
    shard: Shard, device: Device, *, frozen: bool, strategies: Sequence[str], split_backward: bool
) -> pb.LayerCost:
    """Tabulate what one layer costs on one rank.

    Parameters
    ----------
    shard
        The GPU's part of the layer.
    device
        What the GPU reaches.
    frozen
        Whether the layer has no weight gradients.
    strategies
        Which of ``STRATEGIES`` the trainers can run.
    split_backward
        Whether the trainers can run the backward in two halves.
    """
    passes = layer_passes(shard, frozen=frozen)
    kept = BF16 * shard.kept_numbers(frozen=frozen)
    cost = pb.LayerCost(attention=_attention(shard, device))
    for units in POINTS:
        cost.points.add(
            units=units,
            forward_us=_time_us(passes.forward, device, units),
            backward_input_us=_time_us(passes.backward_input, device, units),
            backward_weight_us=_time_us(passes.backward_weight, device, units),
            activation_bytes=math.ceil(kept * units),
        )
    for name in strategies:
        if name == RECOMPUTE:
            cost.strategies.append(recompute(cost, input_bytes=BF16 * shard.between))
        else:
            cost.strategies.append(
                offload(cost, host_bytes=device.host_bytes, overlap=device.overlap, split_backward=split_backward)
            )
    return cost


def layer_passes(shard: Shard, *, frozen: bool) -> Passes:
    """List the operators of a layer: products, attention's traffic, element-wise work, exchanges."""
    layer, queries, keys = shard.layer, shard.queries, shard.keys
    matrices = layer.mlp_matrices
    forward = [
        *(_product(inner, outer) for inner, outer in shard.products),
        _traffic(2 * queries + 2 * keys),  # attention: queries, keys and values in, result out
        *(_traffic(2 * shard.between),) * 2,  # normalization: in, out
        *(_traffic(3 * shard.between),) * 2,  # both inputs of an addition, its result
        _traffic(matrices * shard.mlp),  # activation: in (and gate), out
    ]
    backward = [
        *(_product(outer, inner) for inner, outer in shard.products),
        _traffic(4 * queries + 4 * keys),  # besides the forward's: the result's gradient in, three gradients out
        *(_traffic(3 * shard.between),) * 2,  # normalization: input and gradient in, gradient out
        *(_traffic(3 * shard.between),) * 2,  # the gradients of both branches of an addition, and their sum
        _traffic((5 if matrices == GATED else 3) * shard.mlp),  # inputs and gradient in, gradients out
    ]
    exchanges = _exchanges(shard)
    weight = [] if frozen else [_weight_gradient(inner, outer) for inner, outer in shard.products]
    return Passes(forward=(*forward, *exchanges), backward_input=(*backward, *exchanges), backward_weight=tuple(weight))


def _product(inner: float, outer: float) -> Operator:
    return Operator(flop=2 * inner * outer, bytes_once=BF16 * inner * outer, bytes_each=BF16 * (inner + outer))


def _weight_gradient(inner: float, outer: float) -> Operator:
    """Add to the gradient in fp32: it is read and written once."""
    return Operator(flop=2 * inner * outer, bytes_once=2 * FP32 * inner * outer, bytes_each=BF16 * (inner + outer))


def _traffic(numbers: float) -> Operator:
    return Operator(bytes_each=BF16 * numbers)


def _exchanges(shard: Shard) -> tuple[Operator, ...]:
    """Exchanges of one pass: units are gathered before attention and before the MLP, and reduced after each.

    A ring sends ``(n - 1) / n`` of the whole from every GPU (Thakur et al., 2005), for all four alike.
    """
    if shard.gpus == 1:
        return ()
    return (Operator(exchanged=BF16 * shard.layer.width * (shard.gpus - 1) / shard.gpus),) * 4


def _attention(shard: Shard, device: Device) -> pb.AttentionCost:
    """Two products of ``queries`` numbers for each pair of units; half of the pairs where causal."""
    pairs = 0.5 if shard.layer.causal else 1.0
    forward_us = 4 * shard.queries * pairs / device.attention_flop
    return pb.AttentionCost(forward_us=forward_us, backward_input_us=BACKWARD_ATTENTION * forward_us)


def _time_us(operators: Sequence[Operator], device: Device, units: int) -> float:
    """Sum of the operators' times, to the nanosecond."""
    return round(sum(operator.time_us(device, units) for operator in operators), 3)
