"""Validation of what one layer costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dip.costs import STORE
from dip.validation.limits import MAX_BYTES, MAX_COST_POINTS, MAX_COST_US, MAX_STRATEGIES, MAX_UNITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dip.planner.v1 import planner_pb2 as pb
    from dip.validation.violations import Violations

_TIMES = ("forward_us", "backward_input_us", "backward_weight_us")
_SIZES = ("activation_bytes", "split_activation_bytes")


def check_layer_cost(cost: pb.LayerCost, path: str, violations: Violations) -> None:
    """Check the points of "store" and of every other strategy, and the strategies' names."""
    _check_points(cost.points, f"{path}.points", violations)
    _check_attention(cost.attention, f"{path}.attention", violations)
    if len(cost.strategies) > MAX_STRATEGIES:
        violations.add(f"{path}.strategies", f"{len(cost.strategies)} strategies", f"at most {MAX_STRATEGIES}")
    names: set[str] = set()
    for i, strategy in enumerate(cost.strategies[:MAX_STRATEGIES]):
        at = f"{path}.strategies[{i}]"
        if violations.name(f"{at}.name", strategy.name):
            if strategy.name == STORE:
                violations.add(f"{at}.name", STORE, "another name: the layer's own points are its way to store")
            elif strategy.name in names:
                violations.add(f"{at}.name", strategy.name, "unlike the names of the layer's other strategies")
            names.add(strategy.name)
        _check_points(strategy.points, f"{at}.points", violations)
        _check_attention(strategy.attention, f"{at}.attention", violations)


def _check_points(points: Sequence[pb.CostPoint], path: str, violations: Violations) -> None:
    if not points:
        violations.missing(path, "at least one measured point")
    if len(points) > MAX_COST_POINTS:
        violations.add(path, f"{len(points)} points", f"at most {MAX_COST_POINTS}")
    before = 0
    for i, point in enumerate(points[:MAX_COST_POINTS]):
        at = f"{path}[{i}]"
        if violations.in_range(f"{at}.units", point.units, 1, MAX_UNITS):
            if point.units <= before:
                violations.add(f"{at}.units", point.units, f"more than {before}, the units of the point before")
            before = point.units
        for field in _TIMES:
            violations.in_range(f"{at}.{field}", getattr(point, field), 0, MAX_COST_US)
        for field in _SIZES:
            violations.in_range(f"{at}.{field}", getattr(point, field), 0, MAX_BYTES)


def _check_attention(attention: pb.AttentionCost, path: str, violations: Violations) -> None:
    for field in _TIMES:
        violations.in_range(f"{path}.{field}", getattr(attention, field), 0, MAX_COST_US)
