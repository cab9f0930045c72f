"""How many sub-microbatches each microbatch gets in each module, and which instance goes where.

A microbatch's samples are dealt to as many *slices* as the loss module gets sub-microbatches. A module before it either
cuts each slice further or, where it gets fewer parts than there are slices, takes whole slices together. Slices that no
module joins depend on nothing of each other, which leaves the scheduler the most freedom and the least memory at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dip.parts import instances_of, make_part

from planner_service.split.balance import balance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dip.job import Job, Module
    from dip.parts import Instance
    from dip.planner.v1 import planner_pb2 as pb
    from dip.work import Part


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitTarget:
    """Largest sub-microbatch that the splitter aims at.

    Parameters
    ----------
    units
        For each module; 0: never cut for size alone.
    """

    units: tuple[int, ...]

    def __post_init__(self) -> None:
        if any(units < 0 for units in self.units):
            raise ValueError(f"units is {self.units}; allowed are 0 and more")


class Splitter:
    """Splits batches of one job, remembering how it balanced like microbatches."""

    def __init__(self, job: Job, batch: pb.Batch) -> None:
        self._job = job
        self._batch = batch
        self._balanced: dict[tuple[object, ...], list[int]] = {}

    def split(self, target: SplitTarget) -> list[Part]:
        """Sub-microbatches of the whole batch: by microbatch, then by module, inputs first."""
        parts: list[Part] = []
        for j, microbatch in enumerate(self._batch.microbatches):
            by_module = [instances_of(microbatch, m, range(len(microbatch.samples))) for m in self._job.modules]
            slices = self._slices(by_module, target)
            for module, instances in zip(self._job.modules, by_module, strict=True):
                if instances:
                    groups = self._module_parts(module, instances, slices, target.units[module.index])
                    parts.extend(make_part(module, j, group) for group in groups)
        return parts

    def _slices(self, by_module: Sequence[Sequence[Instance]], target: SplitTarget) -> dict[int, int]:
        """Slice of each sample."""
        samples = sorted({sample for instances in by_module for sample, _, _ in instances})
        last = by_module[-1]
        many = _count(last, target.units[-1])
        sizes = [
            tuple(sum(units for s, _, units in instances if s == sample) for instances in by_module)
            for sample in samples
        ]
        weights = [1.0 / max(1, sum(size[d] for size in sizes)) for d in range(len(by_module))]
        return dict(zip(samples, self._balance(sizes, weights, many), strict=True))

    def _module_parts(
        self, module: Module, instances: Sequence[Instance], slices: dict[int, int], target: int
    ) -> list[list[Instance]]:
        """Instances of one module's sub-microbatches in one microbatch."""
        in_slices: dict[int, list[Instance]] = {}
        for instance in instances:
            in_slices.setdefault(slices[instance[0]], []).append(instance)
        listed = [in_slices[s] for s in sorted(in_slices)]
        many = _count(instances, target)
        if many < len(listed):
            sizes = [(sum(units for _, _, units in held),) for held in listed]
            bins = self._balance(sizes, [1.0], many)
            listed = _gather([(instance, b) for held, b in zip(listed, bins, strict=True) for instance in held])
        wanted = [max(1, round(many * _units(held) / _units(instances))) for held in listed]
        cut = [group for held, k in zip(listed, wanted, strict=True) for group in self._cut(held, k)]
        return [group for held in cut for group in self._limited(held, module.max_units)]

    def _cut(self, instances: Sequence[Instance], many: int) -> list[list[Instance]]:
        """Balanced parts of some instances, each sample's instances together where that balances as well."""
        bins = self._balance([(units,) for _, _, units in instances], [1.0], many)
        return _gather(list(zip(instances, bins, strict=True)))

    def _limited(self, instances: list[Instance], most: int) -> list[list[Instance]]:
        """Parts that stay within the size that the job asks for; a larger instance stands alone."""
        if not most or _units(instances) <= most or len(instances) == 1:
            return [instances]
        for many in range(math.ceil(_units(instances) / most), len(instances) + 1):
            parts = self._cut(instances, many)
            if all(len(part) == 1 or _units(part) <= most for part in parts):
                return parts
        return [[instance] for instance in instances]

    def _balance(self, sizes: Sequence[tuple[int, ...]], weights: Sequence[float], many: int) -> list[int]:
        key = tuple(sizes), many
        if key not in self._balanced:
            self._balanced[key] = balance(sizes, weights, many)
        return self._balanced[key]


def _units(instances: Sequence[Instance]) -> int:
    return sum(units for _, _, units in instances)


def _count(instances: Sequence[Instance], target: int) -> int:
    """Parts that instances need to stay near the target size."""
    return min(len(instances), math.ceil(_units(instances) / target)) if target and instances else 1


def _gather(binned: Sequence[tuple[Instance, int]]) -> list[list[Instance]]:
    """Instances by bin, in their order."""
    groups: dict[int, list[Instance]] = {}
    for instance, b in binned:
        groups.setdefault(b, []).append(instance)
    return [sorted(groups[b]) for b in sorted(groups)]
