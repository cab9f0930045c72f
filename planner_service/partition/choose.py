"""Segments for each module and sizes of sub-microbatches, chosen by scheduling a representative batch with each.

Source of the shape: the paper gives every module its own segments; its formula for their number is loose where layers
do not divide and useless where one module is far cheaper than another, so the scheduler itself decides here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from dip.errors import CannotFitError
from dip.fallback import activation_room, fitting_parts, groups_fit
from dip.partition import batch_load, cut, layer_times_us, slots_of
from dip.parts import instances_of
from dip.work import Work, chunks_of

from planner_service.search.quick import quick_schedule
from planner_service.split.splitter import SplitTarget, Splitter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dip.job import Job
    from dip.planner.v1 import planner_pb2 as pb
    from dip.work import Chunk, Part

    from planner_service.search.quick import Candidate
    from planner_service.search.stopping import Stopping

SEGMENTS = (1, 2, 3, 4, 6, 8)
"""Numbers of segments that are worth a try."""

PARTS = (1, 2, 4, 8)
"""Numbers of sub-microbatches of the largest microbatch that are worth a try."""

CHEAP = 0.02
"""A module with less than this share of the time is not cut finer than it must be."""

ALLOWANCE = 6000
"""Tasks above which a choice is not tried: its search would be slower than it is worth."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """What is tried together.

    Parameters
    ----------
    segments
        For each module how many times it visits every rank; 0: one chunk on one rank.
    parts
        For each module into how many sub-microbatches its largest microbatch is cut.
    """

    segments: tuple[int, ...]
    parts: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen:
    """A partition, the sizes that go with it, and the schedule of the representative batch that spoke for them."""

    partition: pb.Partition
    target: SplitTarget
    candidate: Candidate


class Chooser:
    """Tries choices on one batch, those that a simple estimate likes first, until the budget is spent.

    Parameters
    ----------
    job, batch
        What is trained, on what; at least one microbatch of the batch has samples.
    stopping
        The budget.
    partition
        Kept where given: only sizes are chosen.
    """

    def __init__(self, job: Job, batch: pb.Batch, stopping: Stopping, partition: pb.Partition | None = None) -> None:
        self.job, self.batch, self.stopping, self.partition = job, batch, stopping, partition
        self.loads = [batch_load(module, batch) for module in job.modules]
        self.times = [sum(layer_times_us(m, load)) for m, load in zip(job.modules, self.loads, strict=True)]
        self.splitter = Splitter(job, batch)
        self._cuts: dict[tuple[int, ...], pb.Partition] = {}

    def choose(self) -> Chosen:
        """Best choice within the budget; the first that fits is always tried.

        Raises
        ------
        CannotFitError
            If no choice fits, from the finest cut between samples.
        """
        best: Chosen | None = None
        refused: CannotFitError | None = None
        for choice in sorted(self._choices(), key=self.estimate_us):
            if best and self.stopping.spent():
                break
            try:
                found = self._try(choice, self._parts(choice), seeds=6)
            except CannotFitError as error:
                refused = error
                continue
            if found and (best is None or found.candidate.makespan_us < best.candidate.makespan_us):
                best = found
        return best or self._last_resort(refused)

    def _choices(self) -> Iterator[Choice]:
        """All combinations worth an estimate."""
        segments = [self._segments(m) for m in range(len(self.job.modules))]
        parts = [self._numbers_of_parts(m) for m in range(len(self.job.modules))]
        for of_segments in product(*segments) if self.partition is None else [tuple(1 for _ in segments)]:
            for of_parts in product(*parts):
                yield Choice(segments=of_segments, parts=of_parts)

    def _share(self, m: int) -> float:
        return self.times[m] / max(1e-9, sum(self.times))

    def _segments(self, m: int) -> Sequence[int]:
        module, ranks = self.job.modules[m], self.job.ranks
        if m in self.job.segments:
            return (self.job.segments[m],)
        if self._share(m) < CHEAP or module.num_layers < ranks:
            return (1,) if self._share(m) > 0.5 / ranks else (1, 0)
        return [k for k in SEGMENTS if k * ranks <= module.num_layers]

    def _numbers_of_parts(self, m: int) -> Sequence[int]:
        module = self.job.modules[m]
        everything = (instances_of(mb, module, range(len(mb.samples))) for mb in self.batch.microbatches)
        most = max(map(len, everything), default=0)
        if module.max_units or self._share(m) < CHEAP:
            return (1,)
        return [k for k in PARTS if k <= max(1, most)]

    def target(self, choice: Choice) -> SplitTarget:
        """Sizes that a choice aims at."""
        units = []
        for module, load, many in zip(self.job.modules, self.loads, choice.parts, strict=True):
            largest = max(size for size, _, _ in load.sizes)
            units.append(module.max_units or (math.ceil(largest / many) if many > 1 else 0))
        return SplitTarget(units=tuple(units))

    def estimate_us(self, choice: Choice) -> float:
        """Load of a rank plus a ramp over all ranks at each end, of tasks of mean size: a guess that orders choices."""
        job, total, ramp, tasks = self.job, 0.0, 0.0, 0
        for m, (module, load) in enumerate(zip(job.modules, self.loads, strict=True)):
            largest = max(size for size, _, _ in load.sizes)
            goal = module.max_units or largest / choice.parts[m]
            time, count = 0.0, 0
            for units, squares, many in load.sizes:
                k = max(1, math.ceil(units / goal))
                one = type(load)(sizes=((math.ceil(units / k), math.ceil(squares / k), 1),))
                time += many * k * sum(layer_times_us(module, one))
                count += many * k
            chunks = max(1, min(choice.segments[m] * job.ranks, module.num_layers))
            if self.partition is not None:
                chunks = max(1, sum(chunk.module == module.name for chunk in self.partition.chunks))
            total += time
            ramp += time / chunks / max(1, count) * self._share(m)
            tasks += 2 * count * chunks
        work = sum(job.speed)
        return total / work * (1.0 + 0.02 * max(0.0, tasks / ALLOWANCE - 1.0)) + ramp * (job.ranks - 1)

    def _parts(self, choice: Choice) -> list[Part]:
        return self.splitter.split(self.target(choice))

    def _cut(self, choice: Choice) -> pb.Partition:
        if self.partition is not None:
            return self.partition
        if choice.segments not in self._cuts:
            pairs = zip(self.job.modules, choice.segments, strict=True)
            slots = [slots_of(self.job, module, k) if k else [0] for module, k in pairs]
            self._cuts[choice.segments] = cut(self.job, self.loads, slots)
        return self._cuts[choice.segments]

    def _try(self, choice: Choice, parts: list[Part], *, seeds: int) -> Chosen | None:
        """Schedule a choice quickly; None where its sub-microbatches do not fit alone."""
        partition = self._cut(choice)
        chunks = chunks_of(self.job, partition)
        room = activation_room(self.job, chunks)
        work = Work(job=self.job, forward_only=self.batch.forward_only, chunks=chunks, parts=parts)
        if not groups_fit(work, room):
            return None
        candidate, tried = quick_schedule(work, seeds=seeds)
        self.stopping.count(tried)
        return Chosen(partition=partition, target=self.target(choice), candidate=candidate)

    def _last_resort(self, refused: CannotFitError | None) -> Chosen:
        """Whole microbatches, cut between samples as far as memory asks for."""
        for choice in sorted(self._choices(), key=self.estimate_us):
            try:
                chunks: list[list[Chunk]] = chunks_of(self.job, self._cut(choice))
                room = activation_room(self.job, chunks)
                found = self._try(choice, fitting_parts(self.job, self.batch, chunks, room), seeds=6)
            except CannotFitError as error:
                refused = refused if refused and refused.needed_bytes <= error.needed_bytes else error
                continue
            if found:
                return found
        if refused is None:
            raise RuntimeError("no choice fits, and none says why")
        raise refused
