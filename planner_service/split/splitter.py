"""How many sub-microbatches each microbatch gets in each module, and which instance goes where.

A microbatch's samples are dealt to as many *slices* as the loss module gets sub-microbatches, or as many as keep what
depends on each other within the memory aimed at, if that asks for more. A module before it either cuts each slice
further or, where it gets fewer parts than there are slices and memory does not ask for them, takes whole slices
together. Slices that no module joins depend on nothing of each other, which leaves the scheduler the most freedom and
the least memory at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from dip.chunk_costs import layers_cost
from dip.costs import STORE
from dip.parts import instances_of, make_part

from planner_service.split.balance import Effort, balance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dip.job import Job, Module
    from dip.parts import Instance
    from dip.planner.v1 import planner_pb2 as pb
    from dip.work import Part

EFFORT = 0.05
"""What CP-SAT may spend on splitting a batch, in its own deterministic unit of time: some hundredths of a second."""

GRAIN = 10_000
"""Steps in which a share of a microbatch's memory is counted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitTarget:
    """Largest sub-microbatch, and group of those that depend on each other, that the splitter aims at.

    Parameters
    ----------
    units
        For each module the largest sub-microbatch; 0: never cut for size alone.
    group_bytes
        What all layers keep for the largest group; 0: never cut for memory alone.
    """

    units: tuple[int, ...]
    group_bytes: int = 0

    def __post_init__(self) -> None:
        if any(units < 0 for units in self.units):
            raise ValueError(f"units is {self.units}; allowed are 0 and more")
        if self.group_bytes < 0:
            raise ValueError(f"group_bytes is {self.group_bytes}; allowed are 0 and more")


class Splitter:
    """Splits batches of one job, remembering how it balanced like microbatches.

    Parameters
    ----------
    job
        The job.
    batch
        What is split.
    effort
        What CP-SAT may spend on one split, in its own deterministic unit of time; 0: nothing.
    """

    def __init__(self, job: Job, batch: pb.Batch, *, effort: float = EFFORT) -> None:
        self._effort = effort
        self._job = job
        self._microbatches = [
            [instances_of(microbatch, module, range(len(microbatch.samples))) for module in job.modules]
            for microbatch in batch.microbatches
        ]
        self._unit_bytes = [self._bytes_of_a_unit(module) for module in job.modules]
        self._balanced: dict[tuple[object, ...], list[int]] = {}
        self._left = Effort(left=effort)

    @cached_property
    def sizes(self) -> list[list[tuple[int, int]]]:
        """Units and squared units of each microbatch in each module."""
        return [
            [(_units(instances), sum(units * units for _, _, units in instances)) for instances in by_module]
            for by_module in self._microbatches
        ]

    @property
    def most_instances(self) -> list[int]:
        """For each module, the most instances that a microbatch has."""
        counts = zip(*([len(instances) for instances in by_module] for by_module in self._microbatches), strict=True)
        return [max(of_module) for of_module in counts]

    @cached_property
    def group_bytes(self) -> list[int]:
        """What all layers keep for each microbatch, run whole."""
        return [self._kept([_units(instances) for instances in by_module]) for by_module in self._microbatches]

    def _kept(self, units: Sequence[int]) -> int:
        return round(sum(many * each for many, each in zip(units, self._unit_bytes, strict=True)))

    def _bytes_of_a_unit(self, module: Module) -> float:
        """What all layers of a module keep for a unit of its largest microbatch."""
        most = max((_units(by_module[module.index]) for by_module in self._microbatches), default=0)
        if not most or not module.trains:
            return 0.0
        return layers_cost(module, 0, ((STORE, module.num_layers),), units=most, squares=0).activation_bytes / most

    def split(self, target: SplitTarget) -> list[Part]:
        """Sub-microbatches of the whole batch: by microbatch, then by module, inputs first."""
        parts: list[Part] = []
        self._left = Effort(left=self._effort)
        for j, by_module in enumerate(self._microbatches):
            least = math.ceil(self.group_bytes[j] / target.group_bytes) if target.group_bytes else 1
            slices = self._slices(by_module, target, least)
            for module, instances in zip(self._job.modules, by_module, strict=True):
                if instances:
                    many = max(_count(instances, target.units[module.index]), least)
                    groups = self._module_parts(module, instances, slices, many)
                    parts.extend(make_part(module, j, group) for group in groups)
        return parts

    def _slices(self, by_module: Sequence[Sequence[Instance]], target: SplitTarget, least: int) -> dict[int, int]:
        """Slice of each sample: at least so many."""
        units: dict[int, list[int]] = {sample: [0] * len(by_module) for sample in _samples(by_module)}
        for m, instances in enumerate(by_module):
            for sample, _, size in instances:
                units[sample][m] += size
        many = max(_count(by_module[-1], target.units[-1]), least)
        sizes = [tuple(of_sample) for of_sample in units.values()]
        if least > 1:  # what counts is that none keeps more than the others, whatever it is of
            kept = [self._kept(of_sample) for of_sample in sizes]
            sizes = [(1 + GRAIN * each // max(1, sum(kept)),) for each in kept]
        weights = [1.0 / max(1, sum(size[d] for size in sizes)) for d in range(len(sizes[0]) if sizes else 0)]
        return dict(zip(units, self._balance(sizes, weights, many), strict=True))

    def _module_parts(
        self, module: Module, instances: Sequence[Instance], slices: dict[int, int], many: int
    ) -> list[list[Instance]]:
        """Instances of one module's sub-microbatches in one microbatch, about so many."""
        in_slices: dict[int, list[Instance]] = {}
        for instance in instances:
            in_slices.setdefault(slices[instance[0]], []).append(instance)
        listed = [in_slices[s] for s in sorted(in_slices)]
        if many < len(listed):
            sizes = [(_units(held),) for held in listed]
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
            self._balanced[key] = balance(sizes, weights, many, self._left)
        return self._balanced[key]


def _samples(by_module: Sequence[Sequence[Instance]]) -> list[int]:
    """Samples that have work for some module, in their order."""
    return sorted({sample for instances in by_module for sample, _, _ in instances})


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
