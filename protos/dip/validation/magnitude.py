"""Bounds on the sums that a batch leads to: whatever the plan, its times and sizes are whole numbers of an int64.

Every field of a request may be within its own limit and the sums still overflow. The bounds here hold for every way to
cut the batch into sub-microbatches, every strategy and every partition; real jobs stay below them by many orders.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from dip.validation.limits import MAX_TOTAL_BYTES, MAX_TOTAL_US

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from dip.planner.v1 import planner_pb2 as pb
    from dip.validation.violations import Violations

_TIMES: tuple[Callable[[pb.CostPoint | pb.AttentionCost], float], ...] = (
    lambda cost: cost.forward_us,
    lambda cost: cost.backward_input_us,
    lambda cost: cost.backward_weight_us,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Load:
    """Instances and units of one module, microbatch by microbatch."""

    instances: list[int]
    units: list[int]


def check_static_bytes(model: pb.Model, path: str, violations: Violations) -> None:
    """Check the sum of the static bytes of all layers."""
    total = sum(run.count * run.static_bytes for module in model.modules for run in module.layers)
    if total > MAX_TOTAL_BYTES:
        violations.add(f"{path}.modules", f"{total} static bytes", f"at most {MAX_TOTAL_BYTES} in all layers together")


def check_magnitudes(spec: pb.JobSpec, batch: pb.Batch, path: str, violations: Violations) -> None:
    """Check the sums of all times and all sizes of a batch, both message valid in all else."""
    loads = _loads(spec, batch)
    speed = min([1.0, *spec.cluster.rank_speed])
    total_us, total_bytes = 0.0, 0.0
    for module in spec.model.modules:
        load = loads[module.name]
        for run in module.layers:
            ways = list(_ways(run.cost))
            total_us += run.count * sum(max(_time(*way, time, load) for way in ways) for time in _TIMES) / speed
            total_us += 3 * run.count * sum(load.instances)
            total_bytes += run.count * max(_kept(points, load) for points, _ in ways)
    hops, crossing_bytes = _transfers(spec, loads)
    total_us += hops * spec.cluster.link_latency_us
    if spec.cluster.link_bytes_per_us:
        total_us += hops + crossing_bytes / spec.cluster.link_bytes_per_us
    field = f"{path}.microbatches"
    for held, what, allowed in (
        (total_us, "microseconds of work and transfers", MAX_TOTAL_US),
        (total_bytes, "bytes kept by its tasks", MAX_TOTAL_BYTES),
        (crossing_bytes, "bytes between ranks", MAX_TOTAL_BYTES),
    ):
        if held > allowed:
            violations.add(field, f"up to {held:.3g} {what}", f"a batch of at most {allowed:.3g}")


def _loads(spec: pb.JobSpec, batch: pb.Batch) -> dict[str, _Load]:
    num = len(batch.microbatches)
    loads = {module.name: _Load(instances=[0] * num, units=[0] * num) for module in spec.model.modules}
    for j, microbatch in enumerate(batch.microbatches):
        for sample in microbatch.samples:
            by_module = sample.instances
            for name in by_module:
                load, units = loads[name], by_module[name].units[:]
                load.instances[j] += len(units)
                load.units[j] += sum(units)
    return loads


def _ways(cost: pb.LayerCost) -> Iterator[tuple[Sequence[pb.CostPoint], pb.AttentionCost]]:
    yield cost.points, cost.attention
    for strategy in cost.strategies:
        yield strategy.points, strategy.attention


def _time(
    points: Sequence[pb.CostPoint],
    attention: pb.AttentionCost,
    time: Callable[[pb.CostPoint | pb.AttentionCost], float],
    load: _Load,
) -> float:
    line = [(point.units, time(point)) for point in points]
    return _line_total(line, load) + time(attention) * sum(units * units for units in load.units)


def _kept(points: Sequence[pb.CostPoint], load: _Load) -> float:
    line = [(point.units, float(max(point.activation_bytes, point.split_activation_bytes))) for point in points]
    return _line_total(line, load)


def _line_total(line: Sequence[tuple[int, float]], load: _Load) -> float:
    """Bound the sum of a piecewise linear cost over any cut of the microbatches into sub-microbatches.

    A line of slope at most ``b`` that starts at ``a`` gives at most ``a`` for each of them and ``b`` for each unit; and
    none of them costs more than the line's peak on the largest microbatch. Measured points are noisy, which makes
    slopes steep, and microbatches differ, which makes peaks loose: the smaller of the two bounds counts.
    """
    largest = max(load.units, default=0)
    if not largest:
        return 0.0
    if len(line) == 1:
        line = [(0, 0.0), *line]
    slopes = [(y1 - y0) / (x1 - x0) for (x0, y0), (x1, y1) in pairwise(line)]
    start = max(0.0, line[0][1] - slopes[0] * line[0][0])
    end = max(0.0, line[-1][1] + slopes[-1] * (largest - line[-1][0]))
    peak = max([start, end, *(y for x, y in line if x <= largest)])
    by_peak = peak * max(load.instances) * len(load.instances)
    return min(by_peak, start * sum(load.instances) + max(0.0, *slopes) * sum(load.units))


def _transfers(spec: pb.JobSpec, loads: dict[str, _Load]) -> tuple[int, int]:
    """Bound the transfers of a batch, activations and gradients, and the bytes that they carry."""
    hops, crossing_bytes = 0, 0
    for module in spec.model.modules:
        load, inside = loads[module.name], sum(run.count for run in module.layers) - 1
        hops += 2 * inside * sum(load.instances)
        crossing_bytes += 2 * inside * module.output_bytes_per_unit * sum(load.units)
        for name in module.inputs:
            producer = next(other for other in spec.model.modules if other.name == name)
            width = producer.result_bytes_per_unit or producer.output_bytes_per_unit
            made = loads[name]
            hops += 2 * sum(p * c for p, c in zip(made.instances, load.instances, strict=True))
            crossing_bytes += 2 * width * sum(u * c for u, c in zip(made.units, load.instances, strict=True))
    return hops, crossing_bytes
