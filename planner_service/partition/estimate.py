"""A guess of what a choice of segments and sizes is worth, without scheduling anything: it orders what is tried."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from dip.chunk_costs import layers_cost
from dip.costs import STORE
from dip.layers import share_layers
from dip.partition import slots_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dip.job import Job

    from planner_service.partition.choice import Choice, Shape

ALLOWANCE = 3000
"""Tasks above which search is slower than a finer cut is worth."""

PENALTY = 0.005
"""What every further such number of tasks adds, as a share of the load."""

GROUPS_IN_FLIGHT = 3
"""Groups of sub-microbatches for each rank that a good schedule holds at once."""

RAMPS = 2
"""Ramps that a schedule pays for: one at each end, as tasks of mean size make it."""

NOTICEABLE = 0.05
"""Share of all activations below which a module's sub-microbatches do not matter for memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sizes:
    """What there is to do, microbatch by microbatch; of several batches, all in a row.

    Parameters
    ----------
    units, squares
        For each module and microbatch: units, and squared units.
    group_bytes
        For each microbatch what all layers keep.
    """

    units: tuple[tuple[int, ...], ...]
    squares: tuple[tuple[int, ...], ...]
    group_bytes: tuple[int, ...]

    def largest(self, m: int) -> int:
        """Units of a module's largest microbatch."""
        return max(self.units[m], default=0)

    def num_slices(self, j: int, slices: int) -> int:
        """Groups of a microbatch where the heaviest one is cut into so many."""
        heaviest = max(self.group_bytes)
        return max(1, math.ceil(slices * self.group_bytes[j] / heaviest)) if slices > 1 and heaviest else 1


@dataclass(frozen=True, kw_only=True, slots=True)
class ModuleWork:
    """All sub-microbatches of one module, on one rank of speed 1.

    Parameters
    ----------
    count
        How many there are.
    forward_us, backward_us
        What all layers take.
    kept_bytes
        What all layers keep.
    """

    count: int
    forward_us: float
    backward_us: float
    kept_bytes: float

    @property
    def total_us(self) -> float:
        """Forward and backward."""
        return self.forward_us + self.backward_us


class Estimator:
    """Estimates for one job and one or more batches.

    Parameters
    ----------
    job
        The job.
    sizes
        What each module has to do, by microbatch.
    forward_only
        Whether there is no backward.
    """

    def __init__(self, job: Job, sizes: Sizes, *, forward_only: bool) -> None:
        self._job, self._sizes, self._forward_only = job, sizes, forward_only
        self._known: dict[tuple[int, int, int], ModuleWork] = {}
        self._shares: dict[tuple[tuple[int, int], ...], float] = {}

    @cached_property
    def shares(self) -> list[float]:
        """Share of each module in the work of the whole batch, uncut."""
        times = [self.work(m, 1, 1).total_us for m in range(len(self._job.modules))]
        return [time / max(1e-9, sum(times)) for time in times]

    def work(self, m: int, parts: int, slices: int) -> ModuleWork:
        """Work of a module when its largest microbatch is cut into so many parts, and the heaviest into slices."""
        if (m, parts, slices) not in self._known:
            self._known[m, parts, slices] = self._work(m, parts, slices)
        return self._known[m, parts, slices]

    def _work(self, m: int, parts: int, slices: int) -> ModuleWork:
        module = self._job.modules[m]
        goal = module.max_units or max(1, self._sizes.largest(m)) / parts
        count, forward, backward, kept = 0, 0.0, 0.0, 0.0
        for j, (units, squares) in enumerate(zip(self._sizes.units[m], self._sizes.squares[m], strict=True)):
            if not units:
                continue
            k = max(math.ceil(units / goal), self._sizes.num_slices(j, slices))
            way = ((STORE, module.num_layers),)
            one = layers_cost(module, 0, way, units=math.ceil(units / k), squares=math.ceil(squares / k))
            forward += k * one.forward_us
            if module.trains and not self._forward_only:
                backward += k * (one.backward_input_us + (0.0 if module.frozen else one.backward_weight_us))
                kept += k * one.activation_bytes
            count += k
        return ModuleWork(count=count, forward_us=forward, backward_us=backward, kept_bytes=kept)

    def efficiency(self, m: int, parts: int) -> float:
        """Throughput of a module on parts of its largest microbatch, as a share of that on it whole."""
        module, largest = self._job.modules[m], max(1, self._sizes.largest(m))
        way = ((STORE, module.num_layers),)
        whole = layers_cost(module, 0, way, units=largest, squares=0).forward_us
        part = layers_cost(module, 0, way, units=math.ceil(largest / parts), squares=0).forward_us
        return min(1.0, whole / (parts * part)) if part else 1.0

    def load_us(self, choice: Choice) -> float:
        """Time of the busiest rank if it never waits and nothing is recomputed."""
        works = self._works(choice)
        return sum(work.total_us for work in works) / sum(self._job.speed) * self._imbalance(choice.shapes)

    def makespan_us(self, choice: Choice) -> float:
        """Load of a rank, recompute included, plus a ramp over all ranks at each end, of tasks of mean size."""
        works = self._works(choice)
        chunks = [self._num_chunks(m, shape) for m, shape in enumerate(choice.shapes)]
        ramp = sum(
            share * work.total_us / (many * max(1, work.count))
            for share, work, many in zip(self.shares, works, chunks, strict=True)
        )
        tasks = sum(2 * work.count * many for work, many in zip(works, chunks, strict=True))
        total = self.load_us(choice) * (1.0 + PENALTY * max(0.0, tasks / ALLOWANCE - 1.0))
        recompute = self._recomputed(works, choice.slices) * sum(work.forward_us for work in works)
        return total + recompute / sum(self._job.speed) + RAMPS * ramp * (self._job.ranks - 1)

    def _works(self, choice: Choice) -> list[ModuleWork]:
        return [self.work(m, parts, choice.slices) for m, parts in enumerate(choice.parts)]

    def _num_chunks(self, m: int, shape: Shape) -> int:
        return len(slots_of(self._job, self._job.modules[m], shape.segments, width=shape.width))

    def _imbalance(self, shapes: Sequence[Shape]) -> float:
        """Load of the busiest rank over the mean, as layers allow; directions do not matter."""
        key = tuple((shape.segments, shape.width) for shape in shapes)
        if key not in self._shares:
            job = self._job
            times = [self.work(m, 1, 1).total_us for m in range(len(job.modules))]
            slots = [
                slots_of(job, m, shape.segments, width=shape.width)
                for m, shape in zip(job.modules, shapes, strict=True)
            ]
            busy = [0.0] * job.ranks
            for m, (ranks, counts) in enumerate(zip(*share_layers(job, times, slots), strict=True)):
                for rank, count in zip(ranks, counts, strict=True):
                    busy[rank] += count * times[m] / job.modules[m].num_layers / job.speed[rank]
            self._shares[key] = max(busy) / max(1e-9, sum(times) / sum(job.speed))
        return self._shares[key]

    @property
    def is_tight(self) -> bool:
        """Whether some rank cannot hold its share of what all microbatches keep."""
        job = self._job
        if not any(job.memory_bytes) or self._forward_only:
            return False
        kept = sum(self.work(m, 1, 1).kept_bytes for m in range(len(job.modules)))
        static = sum(module.static_bytes(0, module.num_layers) for module in job.modules)
        return any(limit and (kept + static) / job.ranks > limit for limit in job.memory_bytes)

    def _recomputed(self, works: Sequence[ModuleWork], slices: int) -> float:
        """Share of the layers that recompute, if all groups are alike and so many are in flight as a rank needs."""
        job = self._job
        if not all(job.memory_bytes):
            return 0.0
        static = sum(module.static_bytes(0, module.num_layers) for module in job.modules)
        kept = sum(work.kept_bytes for work in works)
        # The module that is cut least joins slices into groups; one that keeps next to nothing does not matter.
        noticeable = [work.count for work in works if work.kept_bytes >= NOTICEABLE * kept]
        sliced = sum(self._sizes.num_slices(j, slices) for j in range(len(self._sizes.group_bytes)))
        groups = max(1, min(noticeable, default=1), sliced)
        wanted = kept * min(1.0, GROUPS_IN_FLIGHT * job.ranks / groups)
        room = max(0, sum(job.memory_bytes) - static)
        return min(1.0, max(0.0, 1.0 - room / wanted)) if wanted else 0.0
