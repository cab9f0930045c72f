"""Which choices are worth a try: numbers of segments and ranks, directions, sizes; and which lie side by side."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

from planner_service.partition.choice import Choice, Shape

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from dip.job import Job

    from planner_service.partition.estimate import Estimator

SEGMENTS = (1, 2, 3, 4, 6, 8)
"""Numbers of segments that are worth a try."""

STARTS = (1, 2, 4)
"""Numbers of segments that climbing starts from."""

MOST_OTHERS = 48
"""Combinations of segments that get an estimate: with many modules, all of them would take minutes."""

PARTS = (1, 2, 3, 4, 6, 8, 12)
"""Numbers of sub-microbatches of the largest microbatch that are worth a try."""

SLICES = (1, 2, 3, 4, 6, 8, 12, 16)
"""Numbers of independent groups of the heaviest microbatch that are worth a try."""

CHEAP = 0.02
"""A module with less than this share of the time is not cut finer than it must be."""

EFFICIENT = 0.95
"""Share of the best throughput below which no size is chosen unless memory asks for it: the paper's rule."""


class Space:
    """Choices for one job.

    Parameters
    ----------
    job
        The job.
    estimator
        What modules have to do.
    most_instances
        For each module, the most instances that a microbatch has.
    kept
        Whether the partition is given: only sizes are chosen.
    """

    def __init__(self, job: Job, estimator: Estimator, most_instances: Sequence[int], *, kept: bool) -> None:
        self._job, self._estimator = job, estimator
        modules = range(len(job.modules))
        self.shapes = tuple((Shape(),) if kept else self._shapes(m) for m in modules)
        self.parts = tuple(self._parts(m, most_instances[m]) for m in modules)
        self.slices = SLICES if estimator.is_tight else SLICES[:1]

    def _shapes(self, m: int) -> tuple[Shape, ...]:
        """Ways to lie on the ranks; the first one is on as many as it can be, in one segment."""
        module, ranks = self._job.modules[m], self._job.ranks
        asked = self._job.segments.get(m)
        share = self._estimator.shares[m]
        # On fewer ranks the module itself must not make them the busiest.
        narrow = {1, 2, ranks // 2, 3 * ranks // 4} if asked is None else set()
        widths = [0, *sorted(w for w in narrow if max(1.0, share * ranks) <= w < min(ranks, module.num_layers + 1))]
        numbers: Sequence[int] = SEGMENTS[:1] if share < CHEAP else SEGMENTS
        numbers = numbers if asked is None else (asked,)
        fitting = [(k, w) for w in widths for k in numbers if k == numbers[0] or k * (w or ranks) <= module.num_layers]
        return tuple(
            Shape(segments=k, width=w, zigzag=zigzag, backwards=backwards)
            for k, w in fitting
            for zigzag in ((False, True) if k > 1 and w != 1 else (False,))
            for backwards in ((False, True) if w != 1 and ranks > 1 and module.num_layers > 1 else (False,))
        )

    def _parts(self, m: int, most: int) -> tuple[int, ...]:
        """Numbers of parts; those of less than the efficient size only where memory may ask for them."""
        if self._job.modules[m].max_units or self._estimator.shares[m] < CHEAP:
            return (1,)
        return tuple(
            k
            for k in PARTS
            if k <= max(1, most) and (self._estimator.is_tight or self._estimator.efficiency(m, k) >= EFFICIENT)
        )

    def coarsest(self) -> Choice:
        """One segment a module, nothing cut."""
        return Choice(shapes=tuple(shapes[0] for shapes in self.shapes), parts=tuple(parts[0] for parts in self.parts))

    def starts(self) -> list[Choice]:
        """Few segments a module and many, there and back, in the sizes that the estimate likes best with them."""
        return self._sized_all((many,) * len(self.shapes) for many in STARTS)

    def others(self) -> list[Choice]:
        """The same for numbers of segments that differ by module: what climbing may never come to."""
        numbers = [sorted({shape.segments for shape in shapes if not shape.width}) for shapes in self.shapes]
        if math.prod(map(len, numbers)) <= MOST_OTHERS:
            return self._sized_all(product(*numbers))
        alike = [tuple(min(max(of), many) for of in numbers) for many in SEGMENTS]
        varied = [(*one[:m], many, *one[m + 1 :]) for one in alike for m, of in enumerate(numbers) for many in of]
        return self._sized_all(list(dict.fromkeys(varied))[:MOST_OTHERS])

    def _sized_all(self, segments: Iterable[Sequence[int]]) -> list[Choice]:
        """For each of some numbers of segments a choice of sizes; what the estimate likes best first."""
        found: dict[Choice, None] = {}
        for numbers in segments:
            shapes = tuple(self._about(m, many) for m, many in enumerate(numbers))
            found[self._sized(replace(self.coarsest(), shapes=shapes))] = None
        return sorted(found, key=self._estimator.makespan_us)

    def narrow(self) -> Iterator[Choice]:
        """Choices of one segment with one module on fewer ranks: some rank may be too small for every module."""
        coarsest = self.coarsest()
        for m, shapes in enumerate(self.shapes):
            yield from (coarsest.with_shape(m, s) for s in shapes if s.segments == shapes[0].segments and s.width)

    def _about(self, m: int, segments: int) -> Shape:
        """Shape on as many ranks as can be with about so many segments, there and back; the last module's backwards."""
        wide = [s for s in self.shapes[m] if s.width == self.shapes[m][0].width]
        fewest = min(shape.segments for shape in wide)
        last = m == len(self.shapes) - 1
        fitting = [shape for shape in wide if shape.segments <= max(fewest, segments)]
        return max(fitting, key=lambda shape: (shape.segments, shape.zigzag, shape.backwards == last))

    def _sized(self, choice: Choice) -> Choice:
        """Take the step to other sizes that the estimate likes best as long as there is one."""
        now = self._estimator.makespan_us(choice)
        while True:
            steps = [(self._estimator.makespan_us(near), near) for near in self._other_sizes(choice)]
            best = min(steps, default=(now, choice))
            if best[0] >= now:
                return choice
            now, choice = best

    def near(self, choice: Choice) -> Iterator[Choice]:
        """Choices that differ by one step in one thing."""
        for m, shape in enumerate(choice.shapes):
            for other in self.shapes[m]:
                if _are_beside(shape, other, self.shapes[m]):
                    yield choice.with_shape(m, other)
        yield from self._other_sizes(choice)

    def _other_sizes(self, choice: Choice) -> Iterator[Choice]:
        """Choices that differ by one step in one number of parts, or of groups."""
        for m, many in enumerate(choice.parts):
            for other in _beside(self.parts[m], many):
                yield choice.with_parts(m, other)
        for other in _beside(self.slices, choice.slices):
            yield replace(choice, slices=other)


def _beside(scale: Sequence[int], value: int) -> Sequence[int]:
    place = scale.index(value)
    return (*scale[max(0, place - 1) : place], *scale[place + 1 : place + 2])


def _are_beside(shape: Shape, other: Shape, shapes: Sequence[Shape]) -> bool:
    """Whether two shapes differ in one thing: a direction, the ranks, or segments by a step."""
    if other.segments != shape.segments:
        numbers = sorted({s.segments for s in shapes if s.width == shape.width})
        step = other.segments in _beside(numbers, shape.segments)
        # A single segment has no way back.
        return (
            step
            and replace(other, segments=1, zigzag=False) == replace(shape, segments=1, zigzag=False)
            and (other.zigzag == (shape.zigzag and other.segments > 1))
        )
    differences = (other.width != shape.width, other.zigzag != shape.zigzag, other.backwards != shape.backwards)
    return sum(differences) == 1
