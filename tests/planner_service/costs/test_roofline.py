"""Shows that the roofline's tables hold what its formulas say, and lie near those that the workloads are made with."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from dip.costs import LayerTable
from dip.planner.v1 import planner_pb2 as pb
from google.protobuf import json_format

from planner_service.check.setups import SETUPS, Architecture, Setup
from planner_service.check.setups import job as setup_job
from planner_service.costs.gpus import known_gpus
from planner_service.costs.operators import Device, Efficiency
from planner_service.costs.roofline import BACKWARD_ATTENTION, POINTS, STRATEGIES, layer_cost, layer_passes
from planner_service.costs.transformer import Shard, Transformer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner_service.costs.operators import Operator

TIMES_NEAR = 1.3
"""Factor within which each pass is that of the workloads, from one image on; all passes together are within 1.25."""
TOTAL_NEAR = 1.25
BYTES_NEAR = 1.5
"""The same for activations: the workloads have 34 bytes of the width for every shape, the roofline counts the MLP's."""

GPT = Transformer(layers=2, width=1024, mlp_width=4096, heads=16, mlp_matrices=2)


def device_of(name: str, *, tensor_parallel: int = 1, efficiency: Efficiency | None = None) -> Device:
    gpu = known_gpus()[name]
    return Device.of(gpu, efficiency or Efficiency(), tensor_parallel=tensor_parallel, ranks=4)


def cost_of(layer: Transformer, name: str = "H100", *, gpus: int = 1, frozen: bool = False) -> pb.LayerCost:
    shard, device = Shard(layer=layer, gpus=gpus), device_of(name, tensor_parallel=gpus)
    return layer_cost(shard, device, frozen=frozen, strategies=STRATEGIES, split_backward=False)


# ---------------------------------------------------------------- against the workloads


def shape(architecture: Architecture) -> Transformer:
    return Transformer(
        layers=architecture.layers,
        width=architecture.width,
        mlp_width=architecture.mlp_width,
        heads=architecture.heads,
        groups=architecture.groups,
        mlp_matrices=architecture.matrices,
        causal=architecture.causal,
    )


@pytest.mark.parametrize("name", SETUPS)
@pytest.mark.parametrize("way", ["store", "recompute"])
def test_the_setups_of_the_paper_cost_about_what_their_workloads_say(name: str, way: str) -> None:
    setup: Setup = SETUPS[name]
    known = json_format.ParseDict(setup_job(setup), pb.JobSpec())
    for module, (_, architecture) in zip(known.model.modules, setup.modules, strict=True):
        theirs = LayerTable(module.layers[0].cost)
        ours = LayerTable(cost_of(shape(architecture), "H800", gpus=setup.tensor_parallel))
        for units, instance in [(2704, 2704), (8192, 512), (8192, 8192), (32_768, 2704), (129_792, 2704)]:
            a, b = (table.at(way, units, units * instance) for table in (ours, theirs))
            for one, other in [
                (a.forward_us, b.forward_us),
                (a.backward_input_us, b.backward_input_us),
                (a.backward_weight_us, b.backward_weight_us),
            ]:
                assert 1 / TIMES_NEAR <= one / other <= TIMES_NEAR
            total, wanted = (c.forward_us + c.backward_input_us + c.backward_weight_us for c in (a, b))
            assert 1 / TOTAL_NEAR <= total / wanted <= TOTAL_NEAR
            assert 1 / BYTES_NEAR <= a.activation_bytes / b.activation_bytes <= BYTES_NEAR
            assert 1 / BYTES_NEAR <= a.split_activation_bytes / b.split_activation_bytes <= BYTES_NEAR


# ---------------------------------------------------------------- against the formulas


def test_a_large_forward_is_its_operations_at_the_rate_that_is_reached() -> None:
    whole = Efficiency(memory=1.0, products=0.5, launch_us=0.0)
    shard, device = Shard(layer=GPT, gpus=1), device_of("A100", efficiency=whole)
    cost = layer_cost(shard, device, frozen=False, strategies=(), split_backward=False)
    units = POINTS[-1]
    products_us = 2 * 12 * 1024**2 * units / (0.5 * 312e6)
    # normalizations, additions, the activation and the attention's queries, keys, values and result, in bf16
    numbers = (2 * 2 + 2 * 3) * 1024 + 2 * 4096 + 4 * 1024
    traffic_us = 2 * numbers * units / 2039e3
    assert cost.points[-1].forward_us == pytest.approx(products_us + traffic_us, rel=1e-6)
    assert cost.points[-1].backward_weight_us == pytest.approx(products_us, rel=1e-6)


def numbers(operators: Sequence[Operator]) -> list[float]:
    """Return the bf16 numbers a unit of the operators that are traffic alone."""
    return sorted(o.bytes_each / 2 for o in operators if not o.flop and not o.exchanged)


@pytest.mark.parametrize(("matrices", "activation", "gradients"), [(2, 2 * 4096, 3 * 4096), (3, 3 * 4096, 5 * 4096)])
def test_traffic_beside_products(matrices: int, activation: int, gradients: int) -> None:
    layer = Transformer(layers=1, width=1024, mlp_width=4096, heads=16, groups=4, mlp_matrices=matrices)
    passes = layer_passes(Shard(layer=layer, gpus=1), frozen=False)
    attention = 2 * 1024 + 2 * 256
    assert numbers(passes.forward) == sorted([attention, 2048, 2048, 3072, 3072, activation])
    assert numbers(passes.backward_input) == sorted([2 * attention, 3072, 3072, 3072, 3072, gradients])
    assert numbers(passes.backward_weight) == []
    up = (matrices - 1) * 4096
    weights = [1024 * (1024 + 512), 1024 * 1024, 1024 * up, 4096 * 1024]
    assert [o.bytes_once for o in passes.forward if o.flop] == [2 * w for w in weights]
    assert [o.bytes_once for o in passes.backward_input if o.flop] == [2 * w for w in weights]
    # the gradient in fp32 is read and written
    assert [o.bytes_once for o in passes.backward_weight] == [8 * w for w in weights]
    for operators in (passes.forward, passes.backward_input, passes.backward_weight):
        assert [o.flop for o in operators if o.flop] == [2 * w for w in weights]


def test_attention_counts_pairs_of_units() -> None:
    # two products of 2 operations for each number of the width, over all pairs or those before
    device = device_of("H100")
    forward_us = 4 * 1024 / device.attention_flop
    assert cost_of(GPT).attention.forward_us == pytest.approx(forward_us)
    causal = Transformer(layers=2, width=1024, mlp_width=4096, heads=16, mlp_matrices=2, causal=True)
    assert cost_of(causal).attention.forward_us == pytest.approx(forward_us / 2)
    assert cost_of(causal).attention.backward_input_us == pytest.approx(BACKWARD_ATTENTION * forward_us / 2)
    assert cost_of(causal).attention.backward_weight_us == 0
    assert cost_of(GPT, gpus=4).attention.forward_us == pytest.approx(forward_us / 4)


def test_few_units_are_bound_by_weights_and_launches() -> None:
    cost = cost_of(GPT)
    first, second = cost.points[0], cost.points[1]
    device = device_of("H100")
    weights_us = 2 * 12 * 1024**2 / device.memory_bytes
    assert first.forward_us >= weights_us + 10 * device.launch_us
    assert second.forward_us < 1.1 * first.forward_us


def test_exchanges_come_with_tensor_parallelism_alone() -> None:
    alone, shared = (layer_passes(Shard(layer=GPT, gpus=n), frozen=False) for n in (1, 4))
    assert not [o for o in (*alone.forward, *alone.backward_input) if o.exchanged]
    assert [o.exchanged for o in shared.forward if o.exchanged] == [2 * 1024 * 3 / 4] * 4
    assert [o.exchanged for o in shared.backward_input if o.exchanged] == [2 * 1024 * 3 / 4] * 4
    assert not [o for o in shared.backward_weight if o.exchanged]


def test_the_link_decides_what_exchanges_take() -> None:
    at = {name: cost_of(GPT, name, gpus=8).points[-1] for name in ("H100", "H800")}
    sent = 4 * 2 * 1024 * 7 / 8 * POINTS[-1]
    efficiency = Efficiency()
    slower_us = sent / (200e3 * efficiency.nvlink) - sent / (450e3 * efficiency.nvlink)
    assert at["H800"].forward_us - at["H100"].forward_us == pytest.approx(slower_us, rel=1e-6)
    assert at["H800"].backward_weight_us == at["H100"].backward_weight_us


def test_frozen_layers_have_no_weight_half_and_keep_less() -> None:
    trained, frozen = cost_of(GPT), cost_of(GPT, frozen=True)
    assert {point.backward_weight_us for point in frozen.points} == {0.0}
    for one, other in zip(frozen.points, trained.points, strict=True):
        assert (one.forward_us, one.backward_input_us) == (other.forward_us, other.backward_input_us)
        assert one.activation_bytes < other.activation_bytes


@pytest.mark.parametrize("name", known_gpus())
@pytest.mark.parametrize("gpus", [1, 2, 8])
def test_times_rise_ever_faster_with_units(name: str, gpus: int) -> None:
    """Each operator is the longest of lines, so their sum never bends down: lines between points lie above it."""
    points = cost_of(GPT, name, gpus=gpus).points
    for field in ("forward_us", "backward_input_us", "backward_weight_us"):
        values = [getattr(point, field) for point in points]
        slopes = [(values[i + 1] - values[i]) / (points[i + 1].units - points[i].units) for i in range(len(points) - 1)]
        assert all(later >= earlier - 1e-3 for earlier, later in itertools.pairwise(slopes))
        assert slopes[0] >= 0


def test_a_gpu_with_more_of_everything_is_never_slower() -> None:
    for slower, faster in [("A100", "H100"), ("H800", "H100"), ("H100", "H200"), ("H200", "B200"), ("H20", "H200")]:
        for one, other in zip(cost_of(GPT, slower, gpus=8).points, cost_of(GPT, faster, gpus=8).points, strict=True):
            assert one.forward_us >= other.forward_us
            assert one.backward_weight_us >= other.backward_weight_us
