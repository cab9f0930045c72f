"""Useful work of a batch, for the model FLOPs utilisation (MFU; Chowdhery et al. 2022, PaLM, appendix B).

What the model itself needs: products with weights and attention, forward once and backward twice as much. What is
computed again to save memory does not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner_service.check.setups import PEAK_FLOP_PER_US, SETUPS

if TYPE_CHECKING:
    from dip.planner.v1 import planner_pb2 as pb

    from planner_service.check.setups import Architecture

PASSES = 3
"""A forward, and a backward of two products for each of its own."""


def batch_flops(config: str, batch: pb.Batch) -> float:
    """Floating-point operations that training on a batch needs, with the architectures of a set-up."""
    total = 0.0
    for name, architecture in SETUPS[config].modules:
        for microbatch in batch.microbatches:
            for sample in microbatch.samples:
                if name in sample.instances:
                    total += sum(_forward_flops(architecture, units) for units in sample.instances[name].units)
    return PASSES * total


def _forward_flops(architecture: Architecture, units: int) -> float:
    """Operations of a forward on one instance: two for each weight and unit; scores and their use for each pair."""
    pairs = units * units * (0.5 if architecture.causal else 1.0)
    return architecture.layers * (2 * architecture.layer_weights * units + 4 * architecture.width * pairs)


def utilisation(config: str, batch: pb.Batch, makespan_us: int, ranks: int) -> float:
    """Share of the peak of all GPUs that useful work reaches in an iteration; 0 where nothing runs."""
    gpus = ranks * SETUPS[config].tensor_parallel
    return round(batch_flops(config, batch) / (makespan_us * gpus * PEAK_FLOP_PER_US), 4) if makespan_us else 0.0
