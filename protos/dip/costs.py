"""What layers cost: the evaluation rules of LayerCost, exactly as the contract states them."""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dip.planner.v1 import planner_pb2 as pb

STORE = "store"
"""Name of the way to run a layer that keeps every activation."""

ROUNDING_SLACK = 1e-6
"""What a sum of floats may lie above an integer before it is rounded up to the next one."""


class Cost(NamedTuple):
    """Cost of one or more layers on a rank of speed 1 for one sub-microbatch.

    Parameters
    ----------
    forward_us, backward_input_us, backward_weight_us
        Microseconds, not rounded.
    activation_bytes, split_activation_bytes
        What is kept between forward and backward, and between the halves of a split backward, not rounded.
    """

    forward_us: float = 0.0
    backward_input_us: float = 0.0
    backward_weight_us: float = 0.0
    activation_bytes: float = 0.0
    split_activation_bytes: float = 0.0

    def plus(self, other: Cost, times: int = 1) -> Cost:
        """Cost of these layers and ``times`` as many of the others."""
        return Cost(
            self.forward_us + times * other.forward_us,
            self.backward_input_us + times * other.backward_input_us,
            self.backward_weight_us + times * other.backward_weight_us,
            self.activation_bytes + times * other.activation_bytes,
            self.split_activation_bytes + times * other.split_activation_bytes,
        )


ZERO = Cost()


def duration_us(work_us: float, speed: float) -> int:
    """Whole microseconds that work takes on a rank: ``max(1, ceil(work / speed - 1e-6))``."""
    return max(1, math.ceil(work_us / speed - ROUNDING_SLACK))


def kept_bytes(size: float) -> int:
    """Whole bytes that a task keeps: its layers' sum, rounded up once."""
    return math.ceil(size - ROUNDING_SLACK)


class CostCurve:
    """One way to run a layer: cost as a function of its instances' sizes.

    Parameters
    ----------
    points
        Costs at some numbers of units, ascending, at least one.
    attention
        Microseconds for each squared unit, on top.
    """

    __slots__ = ("_columns", "_squared", "_units")

    def __init__(self, points: Iterable[pb.CostPoint], attention: pb.AttentionCost) -> None:
        listed = list(points)
        self._units = [point.units for point in listed]
        self._columns = (
            [point.forward_us for point in listed],
            [point.backward_input_us for point in listed],
            [point.backward_weight_us for point in listed],
            [float(point.activation_bytes) for point in listed],
            [float(point.split_activation_bytes or point.activation_bytes) for point in listed],
        )
        self._squared = (attention.forward_us, attention.backward_input_us, attention.backward_weight_us)

    def at(self, units: int, squares: int) -> Cost:
        """Cost of one layer for instances whose sizes sum to ``units`` and their squares to ``squares``."""
        forward, given, weight, kept, split_kept = self._lines(units)
        quadratic = self._squared
        return Cost(
            forward + quadratic[0] * squares,
            given + quadratic[1] * squares,
            weight + quadratic[2] * squares,
            kept,
            split_kept,
        )

    @property
    def middle_units(self) -> int:
        """Units of the point in the middle."""
        return self._units[len(self._units) // 2]

    def _lines(self, units: int) -> list[float]:
        """Linear between points, along the nearest two outside them, proportional for one, never below 0."""
        known = self._units
        if len(known) == 1:
            return [values[0] * units / known[0] for values in self._columns]
        right = min(max(1, bisect_left(known, units)), len(known) - 1)
        beyond, width = units - known[right - 1], known[right] - known[right - 1]
        between = [(values[right - 1], values[right]) for values in self._columns]
        return [max(0.0, low + (high - low) * beyond / width) for low, high in between]


class LayerTable:
    """All ways to run a layer, by name; ``store`` is always among them."""

    __slots__ = ("_curves", "_known", "_leanest", "strategies")

    strategies: tuple[str, ...]
    """Names of the ways, ``store`` first, then in the order of the request."""

    def __init__(self, cost: pb.LayerCost) -> None:
        self._curves = {STORE: CostCurve(cost.points, cost.attention)}
        for strategy in cost.strategies:
            self._curves[strategy.name] = CostCurve(strategy.points, strategy.attention)
        self.strategies = tuple(self._curves)
        self._known: dict[tuple[str, int, int], Cost] = {}
        self._leanest: dict[tuple[int, int], str] = {}

    @property
    def middle_units(self) -> int:
        """Units of the middle cost point: a size that the layer was measured for."""
        return self._curves[STORE].middle_units

    def at(self, strategy: str, units: int, squares: int) -> Cost:
        """Cost of one layer run in one way.

        Raises
        ------
        KeyError
            If the layer has no such strategy.
        """
        key = strategy, units, squares
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._curves[strategy].at(units, squares)
        return found

    def leanest(self, units: int, squares: int) -> str:
        """Name of the way that keeps least between forward and backward; the cheapest of equals, then the first."""
        key = units, squares
        found = self._leanest.get(key)
        if found is None:
            found = self._leanest[key] = min(self.strategies, key=lambda name: _weight(self.at(name, units, squares)))
        return found


def _weight(cost: Cost) -> tuple[float, float]:
    return cost.activation_bytes, cost.forward_us + cost.backward_input_us + cost.backward_weight_us
