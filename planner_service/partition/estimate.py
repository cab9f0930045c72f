"""A guess of what a choice of segments and sizes is worth, without scheduling anything: it orders what is tried."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from dip.chunk_costs import layers_cost
from dip.costs import STORE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dip.job import Job, Module
    from dip.partition import Load

ALLOWANCE = 3000
"""Tasks above which search is slower than a finer cut is worth."""

PENALTY = 0.02
"""What every further such number of tasks adds, as a share of the load."""

GROUPS_IN_FLIGHT = 2
"""Groups of sub-microbatches for each rank that a good schedule holds at once."""

NOTICEABLE = 0.05
"""Share of all activations below which a module's sub-microbatches do not matter for memory."""


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


class Estimator:
    """Estimates for one job and batch.

    Parameters
    ----------
    job
        The job.
    loads
        What each module has to do, by microbatch.
    forward_only
        Whether there is no backward.
    """

    def __init__(self, job: Job, loads: Sequence[Load], *, forward_only: bool) -> None:
        self._job, self._loads, self._forward_only = job, loads, forward_only
        self._known: dict[tuple[int, int], ModuleWork] = {}

    @cached_property
    def shares(self) -> list[float]:
        """Share of each module in the work of the whole batch, uncut."""
        times = [(work := self.work(m, 1)).forward_us + work.backward_us for m in range(len(self._loads))]
        return [time / max(1e-9, sum(times)) for time in times]

    def work(self, m: int, parts: int) -> ModuleWork:
        """Work of a module when its largest microbatch is cut into so many parts, and others into parts alike."""
        if (m, parts) not in self._known:
            self._known[m, parts] = self._work(self._job.modules[m], self._loads[m], parts)
        return self._known[m, parts]

    def _work(self, module: Module, load: Load, parts: int) -> ModuleWork:
        goal = module.max_units or max(size for size, _, _ in load.sizes) / parts
        count, forward, backward, kept = 0, 0.0, 0.0, 0.0
        for units, squares, many in load.sizes:
            k = max(1, math.ceil(units / goal))
            for run in module.runs:
                one = layers_cost(
                    module, run.start, ((STORE, 1),), units=math.ceil(units / k), squares=math.ceil(squares / k)
                )
                layers = many * k * (run.stop - run.start)
                forward += layers * one.forward_us
                if module.trains and not self._forward_only:
                    backward += layers * (one.backward_input_us + (0.0 if module.frozen else one.backward_weight_us))
                    kept += layers * one.activation_bytes
            count += many * k
        return ModuleWork(count=count, forward_us=forward, backward_us=backward, kept_bytes=kept)

    def makespan_us(self, num_chunks: Sequence[int], parts: Sequence[int]) -> float:
        """Load of a rank, recompute included, plus a ramp over all ranks at each end, of tasks of mean size.

        Parameters
        ----------
        num_chunks
            Chunks of each module.
        parts
            Parts of each module's largest microbatch.
        """
        works = [self.work(m, k) for m, k in enumerate(parts)]
        total = sum(work.forward_us + work.backward_us for work in works)
        ramp = sum(
            share * (work.forward_us + work.backward_us) / (chunks * max(1, work.count))
            for share, work, chunks in zip(self.shares, works, num_chunks, strict=True)
        )
        tasks = sum(2 * work.count * chunks for work, chunks in zip(works, num_chunks, strict=True))
        total *= 1.0 + PENALTY * max(0.0, tasks / ALLOWANCE - 1.0)
        total += self._recomputed(works) * sum(work.forward_us for work in works)
        return total / sum(self._job.speed) + ramp * (self._job.ranks - 1)

    def _recomputed(self, works: Sequence[ModuleWork]) -> float:
        """Share of the layers that recompute, if all groups are alike and so many are in flight as a rank needs."""
        job = self._job
        if not all(job.memory_bytes):
            return 0.0
        static = sum(module.static_bytes(0, module.num_layers) for module in job.modules)
        kept = sum(work.kept_bytes for work in works)
        # The module that is cut least joins slices into groups; one that keeps next to nothing does not matter.
        noticeable = [work.count for work in works if work.kept_bytes >= NOTICEABLE * kept]
        groups = max(1, min(noticeable, default=1))
        wanted = kept * min(1.0, GROUPS_IN_FLIGHT * job.ranks / groups)
        room = max(0, sum(job.memory_bytes) - static)
        return min(1.0, max(0.0, 1.0 - room / wanted)) if wanted else 0.0
