"""Trying a choice: its partition, its sub-microbatches, and a quick schedule of each representative batch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dip.errors import CannotFitError
from dip.fallback import activation_room, fitting_parts, groups_fit
from dip.partition import batch_load, cut, slots_of
from dip.work import Work, chunks_of

from planner_service.partition.estimate import Sizes
from planner_service.search.quick import quick_schedule
from planner_service.search.savings import SAVINGS
from planner_service.split.splitter import SplitTarget, Splitter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dip.job import Job
    from dip.planner.v1 import planner_pb2 as pb
    from dip.work import Chunk, Part

    from planner_service.partition.choice import Choice, Shape
    from planner_service.search.quick import Candidate
    from planner_service.search.savings import Saving
    from planner_service.search.stopping import Stopping


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen:
    """A partition, and the schedules of the representative batches that spoke for it and for its sub-microbatches."""

    partition: pb.Partition
    candidates: tuple[Candidate, ...]

    @property
    def candidate(self) -> Candidate:
        """Schedule of the first batch."""
        return self.candidates[0]

    @property
    def makespan_us(self) -> int:
        """Sum over all batches."""
        return sum(candidate.makespan_us for candidate in self.candidates)

    @property
    def num_tasks(self) -> int:
        """Forwards and backwards of all batches."""
        return sum(2 * candidate.work.num_cells for candidate in self.candidates)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What came of a choice.

    Parameters
    ----------
    makespan_us
        Sum of its quick schedules; None: it does not fit.
    num_tasks
        Forwards and backwards that it makes; 0 where it does not fit.
    """

    makespan_us: int | None
    num_tasks: int


class Trials:
    """Schedules choices quickly, remembering what they have in common.

    Parameters
    ----------
    job, batches
        What is trained, on what.
    stopping
        Told how many schedules were tried.
    partition
        Kept where given: shapes of choices do not matter.
    """

    def __init__(
        self, job: Job, batches: Sequence[pb.Batch], stopping: Stopping, partition: pb.Partition | None
    ) -> None:
        self._job, self._batches, self._stopping, self._partition = job, batches, stopping, partition
        # What is only tried is split by heuristics; CP-SAT splits what was chosen.
        self._splitters = [Splitter(job, batch, effort=0.0) for batch in batches]
        self._loads = [batch_load(module, *batches) for module in job.modules]
        self._cuts: dict[tuple[Shape, ...], pb.Partition] = {}
        self._parts: dict[tuple[int, SplitTarget], tuple[Part, ...]] = {}
        self._same: dict[tuple[Part, ...], tuple[Part, ...]] = {}
        self._known: dict[tuple[object, ...], Outcome] = {}
        self.sizes = self._sizes()

    def _sizes(self) -> Sizes:
        by_microbatch = [sizes for splitter in self._splitters for sizes in splitter.sizes]
        modules = range(len(self._job.modules))
        return Sizes(
            units=tuple(tuple(sizes[m][0] for sizes in by_microbatch) for m in modules),
            squares=tuple(tuple(sizes[m][1] for sizes in by_microbatch) for m in modules),
            group_bytes=tuple(size for splitter in self._splitters for size in splitter.group_bytes),
        )

    @property
    def most_instances(self) -> list[int]:
        """For each module, the most instances that a microbatch has."""
        return [max(counts) for counts in zip(*(splitter.most_instances for splitter in self._splitters), strict=True)]

    def target(self, choice: Choice) -> SplitTarget:
        """Sizes that a choice aims at."""
        units = tuple(
            module.max_units or (math.ceil(self.sizes.largest(m) / many) if many > 1 else 0)
            for m, (module, many) in enumerate(zip(self._job.modules, choice.parts, strict=True))
        )
        heaviest = max(self.sizes.group_bytes, default=0)
        return SplitTarget(units=units, group_bytes=math.ceil(heaviest / choice.slices) if choice.slices > 1 else 0)

    def cut(self, choice: Choice) -> pb.Partition:
        """Partition of a choice."""
        if self._partition is not None:
            return self._partition
        if choice.shapes not in self._cuts:
            slots = [
                slots_of(
                    self._job,
                    module,
                    shape.segments,
                    width=shape.width,
                    zigzag=shape.zigzag,
                    backwards=shape.backwards,
                )
                for module, shape in zip(self._job.modules, choice.shapes, strict=True)
            ]
            self._cuts[choice.shapes] = cut(self._job, self._loads, slots)
        return self._cuts[choice.shapes]

    def schedule(self, choice: Choice, *, seeds: int, saving: Saving | None) -> tuple[Outcome, Chosen | None]:
        """Schedule all batches quickly.

        Parameters
        ----------
        choice
            What to try.
        seeds
            How many first priorities to decode.
        saving
            How thrifty to be with memory; None: several.

        Returns
        -------
        Outcome, Chosen or None
            What came of it; the schedules, where all batches fit and the same was not tried before.
        """
        self._stopping.count(1)
        target = self.target(choice)
        parts = [self._split(b, target) for b in range(len(self._batches))]
        # Different targets often mean the same sub-microbatches.
        key = (choice.shapes, *map(id, parts))
        if key in self._known:
            return self._known[key], None
        found = self._schedule(self.cut(choice), parts, seeds, saving)
        outcome = Outcome(makespan_us=found.makespan_us if found else None, num_tasks=found.num_tasks if found else 0)
        self._known[key] = outcome
        return outcome, found

    def _schedule(
        self, partition: pb.Partition, parts: Sequence[Sequence[Part]], seeds: int, saving: Saving | None
    ) -> Chosen | None:
        chunks = chunks_of(self._job, partition)
        try:
            room = activation_room(self._job, chunks)
        except CannotFitError:
            return None
        works = []
        for b, of_batch in enumerate(parts):
            works.append(self._work(b, chunks, of_batch))
            if not groups_fit(works[-1], room):
                return None
        savings = SAVINGS if saving is None else (saving,)
        return Chosen(partition=partition, candidates=tuple(self._quick(work, seeds, savings) for work in works))

    def fit(self, choice: Choice, *, seeds: int) -> Chosen:
        """Schedule whole microbatches, cut into pieces as far as memory asks for, on the choice's partition.

        Raises
        ------
        CannotFitError
            If some piece does not fit alone.
        """
        self._stopping.count(1)
        chunks = chunks_of(self._job, self.cut(choice))
        room = activation_room(self._job, chunks)
        works = [
            self._work(b, chunks, fitting_parts(self._job, batch, chunks, room))
            for b, batch in enumerate(self._batches)
        ]
        candidates = tuple(self._quick(work, seeds, SAVINGS) for work in works)
        return Chosen(partition=self.cut(choice), candidates=candidates)

    def again(self, choice: Choice, chosen: Chosen, *, seeds: int) -> Chosen:
        """Schedule a choice that fitted with more seeds and all savings, also as CP-SAT splits it; never worse."""
        candidates = []
        chunks = chunks_of(self._job, chosen.partition)
        room = activation_room(self._job, chunks)
        for b, old in enumerate(chosen.candidates):
            works = [old.work]
            parts = Splitter(self._job, self._batches[b]).split(self.target(choice))
            if tuple(parts) != old.work.parts:
                works.append(self._work(b, chunks, parts))
            made = [self._quick(work, seeds, SAVINGS) for work in works if groups_fit(work, room)]
            candidates.append(min((old, *made), key=lambda candidate: candidate.makespan_us))
        return Chosen(partition=chosen.partition, candidates=tuple(candidates))

    def _quick(self, work: Work, seeds: int, savings: Sequence[Saving]) -> Candidate:
        candidate, tried = quick_schedule(work, seeds=seeds, savings=savings)
        self._stopping.count(tried)
        return candidate

    def _work(self, b: int, chunks: Sequence[Sequence[Chunk]], parts: Sequence[Part]) -> Work:
        return Work(job=self._job, forward_only=self._batches[b].forward_only, chunks=chunks, parts=parts)

    def _split(self, b: int, target: SplitTarget) -> tuple[Part, ...]:
        """Sub-microbatches of a batch; the same object for the same sub-microbatches."""
        if (b, target) not in self._parts:
            parts = tuple(self._splitters[b].split(target))
            self._parts[b, target] = self._same.setdefault(parts, parts)
        return self._parts[b, target]
