"""What layers cost, evaluated as the contract's LayerCost says."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dip.planner.v1 import planner_pb2 as pb

STORE = "store"

_SLACK = 1e-6


class Cost(NamedTuple):
    """Times and sizes of some layers for one sub-microbatch, before they are divided by speeds and rounded."""

    forward_us: float
    input_us: float
    weight_us: float
    stored_bytes: float
    split_bytes: float


@dataclass(frozen=True, slots=True)
class Way:
    """One way to run a layer: ascending units, the five costs at each, and the three costs of a squared unit."""

    units: Sequence[int]
    costs: Sequence[Cost]
    squared: tuple[float, float, float]

    @classmethod
    def of(cls, points: Sequence[pb.CostPoint], attention: pb.AttentionCost) -> Way:
        """Read the contract's points."""
        costs = [
            Cost(
                point.forward_us,
                point.backward_input_us,
                point.backward_weight_us,
                point.activation_bytes,
                point.split_activation_bytes or point.activation_bytes,
            )
            for point in points
        ]
        squared = attention.forward_us, attention.backward_input_us, attention.backward_weight_us
        return cls([point.units for point in points], costs, squared)

    def at(self, total: int, squares: int) -> Cost:
        """Evaluate for instances with this sum of units and of squared units."""
        if len(self.units) == 1:
            linear = [value * total / self.units[0] for value in self.costs[0]]
        else:
            right = next((i for i, units in enumerate(self.units) if i and units >= total), len(self.units) - 1)
            x0, x1 = self.units[right - 1], self.units[right]
            linear = [
                max(0.0, y0 + (y1 - y0) * (total - x0) / (x1 - x0))
                for y0, y1 in zip(self.costs[right - 1], self.costs[right], strict=True)
            ]
        times = (value + each * squares for value, each in zip(linear, self.squared, strict=False))
        return Cost(*times, *linear[3:])


@dataclass(frozen=True, slots=True)
class LayerFacts:
    """One layer: how it can be run, and the static bytes of its weights."""

    ways: Mapping[str, Way]
    static_bytes: int

    @classmethod
    def of(cls, run: pb.LayerRun) -> LayerFacts:
        """Read one layer of a run."""
        ways = {STORE: Way.of(run.cost.points, run.cost.attention)}
        for strategy in run.cost.strategies:
            ways[strategy.name] = Way.of(strategy.points, strategy.attention)
        return cls(ways, run.static_bytes)


class UnknownStrategyError(Exception):
    """A plan runs a layer in a way that the request does not list."""


def chunk_cost(layers: Sequence[LayerFacts], ways: Sequence[str], total: int, squares: int) -> Cost:
    """Add up layers that each run in their own way.

    Parameters
    ----------
    layers, ways
        The layers, and the name of each one's way.
    total, squares
        Sum of the units of the sub-microbatch's instances, and of their squares.

    Raises
    ------
    UnknownStrategyError
        Where a layer has no such way.
    """
    known: dict[tuple[int, str], Cost] = {}
    sums = [0.0] * len(Cost._fields)
    for layer, way in zip(layers, ways, strict=True):
        key = id(layer), way
        if key not in known:
            if way not in layer.ways:
                raise UnknownStrategyError(f"no strategy {way!r}, there are {sorted(layer.ways)}")
            known[key] = layer.ways[way].at(total, squares)
        for i, value in enumerate(known[key]):
            sums[i] += value
    return Cost(*sums)


def duration_us(work_us: float, speed: float) -> int:
    """Whole microseconds of a task."""
    return max(1, math.ceil(work_us / speed - _SLACK))


def whole_bytes(size: float) -> int:
    """Whole bytes that a task keeps."""
    return math.ceil(size - _SLACK)
