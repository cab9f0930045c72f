"""Segments for each module and sizes of sub-microbatches, chosen by scheduling a representative batch with each.

Source of the shape: the paper gives every module its own segments; its formula for their number is loose where layers
do not divide and useless where one module is far cheaper than another, so the scheduler itself decides here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dip.errors import CannotFitError

from planner_service.partition.estimate import Estimator
from planner_service.partition.report import ChoiceReport, Tried
from planner_service.partition.space import Space
from planner_service.partition.trials import Chosen, Trials

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dip.job import Job
    from dip.planner.v1 import planner_pb2 as pb

    from planner_service.partition.choice import Choice
    from planner_service.search.stopping import Stopping

LAST_TRIES = 4
"""Partitions that hold their layers and are tried in any case before a batch is refused."""

OVERRUN = 1.5
"""Used share of the budget above which even one schedule more is too long: the search has time of its own for it."""

SEEDS, MORE_SEEDS = 3, 8
"""First priorities decoded for each choice, and for the best one."""

TASKS_WEIGHT = 0.5e-6
"""What a task costs, as a share of the makespan: the search has less time for each where there are more."""


class Chooser:
    """Tries choices on one batch or several, those beside the best ones first, until the budget is spent.

    Parameters
    ----------
    job, batch
        What is trained, on what; at least one microbatch of the batch has samples.
    stopping
        The budget.
    partition
        Kept where given: only sizes are chosen.
    more
        Further representative batches: makespans add up.
    on_progress
        Told after each try how many there were, and the best makespan so far; None where nothing fitted.
    """

    def __init__(
        self,
        job: Job,
        batch: pb.Batch,
        stopping: Stopping,
        partition: pb.Partition | None = None,
        *,
        more: Sequence[pb.Batch] = (),
        on_progress: Callable[[int, int | None], None] | None = None,
    ) -> None:
        self.stopping, self._on_progress = stopping, on_progress
        self._job, self._kept = job, partition is not None
        self.trials = Trials(job, [batch, *more], stopping, partition)
        self.estimator = Estimator(job, self.trials.sizes, forward_only=batch.forward_only)
        self.space = Space(job, self.estimator, self.trials.most_instances, kept=self._kept)
        self._tried: dict[Choice, Tried] = {}
        self._skipped: set[Choice] = set()
        self._surrounded: set[Choice] = set()
        self._best: tuple[float, Choice, Chosen] | None = None

    def choose(self) -> Chosen:
        """Best choice within the budget; the one that the estimate likes best is always tried.

        From it on, neighbours of the best one tried come first, as the estimate ranks them, then those of the next
        best. Where none fits within the budget, microbatches are cut as far as memory asks for, in at most as much
        time again.

        Raises
        ------
        CannotFitError
            If no partition tried fits, however finely microbatches are cut.
        """
        starts = self.space.starts()
        choice: Choice | None = starts[0]
        while choice is not None and not (self._tried and self.stopping.spent()):
            self._try(choice)
            choice = self._next(starts)
        if self._best is None:
            return self._last_resort(starts)
        if self.stopping.spent(OVERRUN):
            return self._best[2]
        return self.trials.again(self._best[2], seeds=MORE_SEEDS)

    @property
    def report(self) -> ChoiceReport:
        """What was tried, and why the best choice was taken."""
        return ChoiceReport(
            modules=tuple(module.name for module in self._job.modules),
            kept_partition=self._kept,
            tried=tuple(self._tried.values()),
            skipped=len(self._skipped),
            chosen=self._best[1] if self._best else None,
        )

    def _next(self, starts: Sequence[Choice]) -> Choice | None:
        """Choice to try next; None where there is none left."""
        for choice in starts:
            if choice not in self._tried:
                return choice
        for choice in sorted(self._tried.keys() - self._surrounded, key=self._rank):
            near = [other for other in self.space.near(choice) if self._is_worth_a_try(other)]
            if near:
                return min(near, key=lambda other: (self.estimator.makespan_us(other), other))
            self._surrounded.add(choice)
        return None

    def _rank(self, choice: Choice) -> tuple[float, float, Choice]:
        """Place among those tried: by score; where nothing fits, by how finely memory is cut."""
        score = self._tried[choice].score
        fineness = choice.slices * max(choice.parts)
        return score, -fineness if score == float("inf") else 0.0, choice

    def _is_worth_a_try(self, choice: Choice) -> bool:
        """Whether a choice is new, and not surely worse than the best one even if no rank ever waits."""
        if choice in self._tried or choice in self._skipped:
            return False
        if self._best and self.estimator.load_us(choice) >= self._best[0]:
            self._skipped.add(choice)
            return False
        return True

    def _try(self, choice: Choice) -> None:
        """Schedule a choice quickly, with a reserve like the best one known."""
        reserve = self._best[2].candidate.guide.reserve if self._best else None
        found = self.trials.schedule(choice, seeds=SEEDS, reserve=reserve)
        tried = Tried(
            choice=choice,
            makespan_us=found.makespan_us if found else None,
            num_tasks=found.num_tasks if found else 0,
            score=found.makespan_us * (1.0 + TASKS_WEIGHT * found.num_tasks) if found else float("inf"),
        )
        self._tried[choice] = tried
        if found and (self._best is None or tried.score < self._best[0]):
            self._best = tried.score, choice, found
        if self._on_progress:
            self._on_progress(len(self._tried), self._best[2].makespan_us if self._best else None)

    def _last_resort(self, starts: Sequence[Choice]) -> Chosen:
        """Whole microbatches, cut into pieces as far as memory asks for, on the first partition that allows it."""
        refused: CannotFitError | None = None
        known = {choice.shapes: choice for choice in (*self.space.narrow(), *self._tried, *starts)}
        tries = 0
        for choice in sorted(known.values(), key=self.estimator.makespan_us):
            if tries >= LAST_TRIES and self.stopping.spent(2.0):
                break
            try:
                chosen = self.trials.fit(choice, seeds=MORE_SEEDS)
            except CannotFitError as error:
                tries += 1
                refused = refused if refused and refused.needed_bytes <= error.needed_bytes else error
                continue
            self._best = float(chosen.makespan_us), choice, chosen
            return chosen
        if refused is None:
            raise RuntimeError("no choice fits, and none says why")
        raise refused
