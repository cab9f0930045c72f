"""The least that a rank must hold for a request, from the request's numbers alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dip.planner.v1 import planner_pb2 as pb


@dataclass(frozen=True, kw_only=True, slots=True)
class LeastMemory:
    """What one rank may hold, what its layers hold, and what its worst piece keeps alone with every layer leanest.

    A piece is a sample, or one of its instances where it has work for the loss module alone.
    """

    limit_bytes: int
    static_bytes: int
    worst_piece_bytes: int


def least_kept_bytes(asked: pb.PlanRequest, rank: int) -> LeastMemory:
    """Least memory of one rank, for pieces whose instances run as the job's sub-microbatch sizes cut them."""
    spec = asked.job
    limits = spec.cluster.memory_bytes
    trains: dict[str, bool] = {}
    for module in spec.model.modules:
        trains[module.name] = not module.frozen or any(trains[name] for name in module.inputs)
    static = 0
    worst = 0
    samples = [sample for microbatch in asked.batch.microbatches for sample in microbatch.samples]
    pieces = [piece for sample in samples for piece in pieces_of(sample)]
    kept = [0] * len(pieces)
    for module in spec.model.modules:
        layers = [run for run in module.layers for _ in range(run.count)]
        for chunk in asked.partition.chunks:
            if chunk.module != module.name or chunk.rank != rank:
                continue
            inside = layers[chunk.first_layer : chunk.first_layer + chunk.num_layers]
            static += sum(run.static_bytes for run in inside)
            if asked.batch.forward_only or not trains[module.name]:
                continue
            most = spec.options.sub_microbatch_units.get(module.name, 0)
            for i, piece in enumerate(pieces):
                together = cut(piece.get(module.name, ()), most)
                kept[i] += sum(task_bytes(leanest(run.cost, sum(units)) for run in inside) for units in together)
        worst = max(kept, default=0)
    return LeastMemory(
        limit_bytes=limits[rank] if len(limits) > 1 else limits[0], static_bytes=static, worst_piece_bytes=worst
    )


def pieces_of(sample: pb.Sample) -> list[dict[str, Sequence[int]]]:
    """Units by module of what depends on each other."""
    held = {name: list(instances.units) for name, instances in sample.instances.items() if instances.units}
    if len(held) > 1:
        return [held]
    return [{name: [units]} for name, listed in held.items() for units in listed]


def cut(units: Sequence[int], most: int) -> list[list[int]]:
    """Consecutive instances of at most ``most`` units together (0: no limit)."""
    made: list[list[int]] = []
    for u in units:
        if not made or (most and sum(made[-1]) + u > most):
            made.append([])
        made[-1].append(u)
    return made


def task_bytes(of_layers: Iterable[float]) -> int:
    """What a task keeps: the sum of its layers, rounded up once."""
    return math.ceil(sum(of_layers) - 1e-6)


def leanest(cost: pb.LayerCost, units: int) -> float:
    """Bytes that a layer keeps in its leanest way."""
    return min(line(points, units) for points in (cost.points, *(s.points for s in cost.strategies)))


def line(points: Sequence[pb.CostPoint], units: int) -> float:
    """Activation bytes: linear between points and beyond them, proportional for one, never below 0."""
    x, y = [p.units for p in points], [float(p.activation_bytes) for p in points]
    if len(points) == 1:
        return y[0] * units / x[0]
    i = int(np.clip(np.searchsorted(x, units), 1, len(x) - 1))
    return max(0.0, y[i - 1] + (y[i] - y[i - 1]) * (units - x[i - 1]) / (x[i] - x[i - 1]))
