"""Segments for each module and sizes of sub-microbatches, chosen by scheduling a representative batch with each.

Source of the shape: the paper gives every module its own segments; its formula for their number is loose where layers
do not divide and useless where one module is far cheaper than another, so the scheduler itself decides here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING

from dip.errors import CannotFitError
from dip.fallback import activation_room, fitting_parts, groups_fit
from dip.partition import batch_load, cut, slots_of
from dip.parts import instances_of
from dip.work import Work, chunks_of

from planner_service.partition.estimate import Estimator
from planner_service.search.quick import RESERVES, quick_schedule
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

MOST_CHOICES = 2048
"""Combinations that get an estimate: with many modules, all of them would take minutes before the first plan."""


LAST_TRIES = 4
"""Partitions that hold their layers and are tried in any case before a batch is refused."""

OVERRUN = 1.5
"""Used share of the budget above which even one schedule more is too long: the search has time of its own for it."""


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

    def is_beside(self, other: Choice, scales: Sequence[Sequence[int]]) -> bool:
        """Whether two choices differ by one step of one number."""
        pairs = zip(self.segments + self.parts, other.segments + other.parts, scales, strict=True)
        steps = [abs(scale.index(mine) - scale.index(theirs)) for mine, theirs, scale in pairs]
        return sum(steps) == 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen:
    """A partition, and the schedule of the representative batch that spoke for it and for its sub-microbatches."""

    partition: pb.Partition
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
        self.estimator = Estimator(job, self.loads, forward_only=batch.forward_only)
        self.splitter = Splitter(job, batch)
        self._cuts: dict[tuple[int, ...], pb.Partition] = {}

    def choose(self) -> Chosen:
        """Best choice within the budget; the one that the estimate likes best is always tried.

        From it on, neighbours of the best one tried come first (one number a step up or down), then the others as the
        estimate ranks them. Where none fits within the budget, microbatches are cut as far as memory asks for, in at
        most as much time again.

        Raises
        ------
        CannotFitError
            If no partition tried fits, however finely microbatches are cut.
        """
        choices = sorted(self._choices(), key=self.estimate_us)
        ranked = {choice: place for place, choice in enumerate(choices)}
        best: tuple[Choice, Chosen] | None = None
        while len(ranked) == len(choices) or (ranked and not self.stopping.spent()):
            near = [choice for choice in ranked if best and choice.is_beside(best[0], self._scales)]
            choice = min(near or ranked, key=ranked.__getitem__)
            del ranked[choice]
            found = self._try(choice, best[1].candidate.guide.reserve if best else None)
            if found and (best is None or found.candidate.makespan_us < best[1].candidate.makespan_us):
                best = choice, found
        return self._refined(*best) if best else self._last_resort(choices)

    def _choices(self) -> Iterator[Choice]:
        """All combinations worth an estimate."""
        num = len(self.job.modules)
        for numbers in product(*self._scales):
            yield Choice(segments=numbers[:num], parts=numbers[num:])

    @cached_property
    def _scales(self) -> tuple[Sequence[int], ...]:
        """Numbers worth a try: of segments for each module, then of parts for each module."""
        modules = range(len(self.job.modules))
        segments = [self._segments(m) if self.partition is None else (1,) for m in modules]
        scales = [*segments, *(self._numbers_of_parts(m) for m in modules)]
        while math.prod(map(len, scales)) > MOST_CHOICES:
            longest = max(range(len(scales)), key=lambda i: len(scales[i]))
            scales[longest] = scales[longest][:-1]
        return tuple(scales)

    def _segments(self, m: int) -> Sequence[int]:
        module, ranks = self.job.modules[m], self.job.ranks
        if m in self.job.segments:
            return (self.job.segments[m],)
        if self.estimator.shares[m] < CHEAP or module.num_layers < ranks:
            return (1,) if self.estimator.shares[m] > 0.5 / ranks else (1, 0)
        return [k for k in SEGMENTS if k * ranks <= module.num_layers]

    def _numbers_of_parts(self, m: int) -> Sequence[int]:
        module = self.job.modules[m]
        everything = (instances_of(mb, module, range(len(mb.samples))) for mb in self.batch.microbatches)
        most = max(map(len, everything), default=0)
        if module.max_units or self.estimator.shares[m] < CHEAP:
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
        """Guess of a choice's makespan."""
        return self.estimator.makespan_us(self._num_chunks(choice), choice.parts)

    def _num_chunks(self, choice: Choice) -> list[int]:
        if self.partition is not None:
            return [sum(chunk.module == module.name for chunk in self.partition.chunks) for module in self.job.modules]
        pairs = zip(self.job.modules, choice.segments, strict=True)
        return [max(1, min(k * self.job.ranks, module.num_layers)) for module, k in pairs]

    def _cut(self, choice: Choice) -> pb.Partition:
        if self.partition is not None:
            return self.partition
        if choice.segments not in self._cuts:
            pairs = zip(self.job.modules, choice.segments, strict=True)
            slots = [slots_of(self.job, module, k) if k else [0] for module, k in pairs]
            self._cuts[choice.segments] = cut(self.job, self.loads, slots)
        return self._cuts[choice.segments]

    def _try(self, choice: Choice, reserve: float | None) -> Chosen | None:
        """Schedule a choice quickly, with a reserve like the best one known; None where it does not fit."""
        self.stopping.count(1)
        chunks = chunks_of(self.job, self._cut(choice))
        try:
            room = activation_room(self.job, chunks)
        except CannotFitError:
            return None
        work = self._work(chunks, self.splitter.split(self.target(choice)))
        if not groups_fit(work, room):
            return None
        reserves = RESERVES if reserve is None else (reserve,)
        candidate, tried = quick_schedule(work, seeds=3, reserves=reserves)
        self.stopping.count(tried)
        return Chosen(partition=self._cut(choice), candidate=candidate)

    def _work(self, chunks: Sequence[Sequence[Chunk]], parts: Sequence[Part]) -> Work:
        return Work(job=self.job, forward_only=self.batch.forward_only, chunks=chunks, parts=parts)

    def _refined(self, choice: Choice, found: Chosen) -> Chosen:
        """Schedule the best choice with more seeds and more reserves, unless a single try took more than there is."""
        if self.stopping.spent(OVERRUN):
            return found
        candidate, tried = quick_schedule(found.candidate.work, seeds=8)
        self.stopping.count(tried)
        better = candidate if candidate.makespan_us < found.candidate.makespan_us else found.candidate
        return Chosen(partition=self._cut(choice), candidate=better)

    def _last_resort(self, choices: Sequence[Choice]) -> Chosen:
        """Whole microbatches, cut into pieces as far as memory asks for, on the first partition that allows it."""
        refused: CannotFitError | None = None
        first_of = {choice.segments: choice for choice in reversed(choices)}
        tried = 0
        for choice in sorted(first_of.values(), key=self.estimate_us):
            if tried >= LAST_TRIES and self.stopping.spent(2.0):
                break
            chunks = chunks_of(self.job, self._cut(choice))
            try:
                room = activation_room(self.job, chunks)
                tried += 1
                self.stopping.count(1)
                parts = fitting_parts(self.job, self.batch, chunks, room)
            except CannotFitError as error:
                refused = refused if refused and refused.needed_bytes <= error.needed_bytes else error
                continue
            candidate, schedules = quick_schedule(self._work(chunks, parts), seeds=8)
            self.stopping.count(schedules)
            return Chosen(partition=self._cut(choice), candidate=candidate)
        if refused is None:
            raise RuntimeError("no choice fits, and none says why")
        raise refused
