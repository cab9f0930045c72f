"""Segments for each module and sizes of sub-microbatches, chosen by scheduling a representative batch with each.

Source of the shape: the paper gives every module its own segments; its formula for their number is loose where layers
do not divide and useless where one module is far cheaper than another, so the scheduler itself decides here.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from dip.errors import CannotFitError

from planner_service.partition.estimate import Estimator
from planner_service.partition.report import ChoiceReport, Tried
from planner_service.partition.space import Space
from planner_service.partition.trials import Chosen, Outcome, Trials
from planner_service.search.savings import saving_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dip.job import Job
    from dip.planner.v1 import planner_pb2 as pb

    from planner_service.partition.choice import Choice
    from planner_service.search.stopping import Stopping

LAST_TRIES = 4
"""Partitions that hold their layers and are tried in any case before a batch is refused."""

AFTER, EVERY = 12, 3
"""Tries after which choices far from the best get a turn, and how many tries there are for one of them."""

LEADERS = 3
"""Best choices that are scheduled again with more effort."""

CLIMBING = 0.85
"""Share of the budget for trying choices; the rest is for scheduling the best ones again."""

OVERRUN = 1.5
"""Used share of the budget above which even one schedule more is too long: the search has time of its own for it."""

AGAIN = 3.0
"""How much longer it takes to schedule a choice again than it took at first."""

SEEDS, MORE_SEEDS = 3, 8
"""First priorities decoded for each choice, and for the best one."""

TASKS_WEIGHT = 0.5e-6
"""What a task costs, as a share of the makespan: the search has less time for each where there are more."""


class Leader(NamedTuple):
    """One of the best choices so far, and its schedules."""

    choice: Choice
    chosen: Chosen


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
    on_first
        Given the first choice that fits, as soon as it is scheduled.
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
        on_first: Callable[[Chosen], None] | None = None,
    ) -> None:
        self.stopping, self._on_progress, self._on_first = stopping, on_progress, on_first
        self._job, self._kept = job, partition is not None
        self.trials = Trials(job, [batch, *more], stopping, partition)
        self.estimator = Estimator(job, self.trials.sizes, forward_only=batch.forward_only)
        self.space = Space(job, self.estimator, self.trials.most_instances, kept=self._kept)
        self._tried: dict[Choice, Tried] = {}
        self._skipped: set[Choice] = set()
        self._surrounded: set[Choice] = set()
        self._longest_try = 0.0  # as a share of the budget
        self._leaders: list[Leader] = []
        self._ahead: list[Choice] = []

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
        self._ahead = list(reversed(starts))
        choice: Choice | None = self._next()
        while choice is not None and not (self._tried and self.stopping.spent(CLIMBING if self._leaders else 1.0)):
            self._try(choice)
            choice = self._next()
        return self._finished() if self._leaders else self._last_resort(starts)

    @property
    def report(self) -> ChoiceReport:
        """What was tried, and why the best choice was taken."""
        return ChoiceReport(
            modules=tuple(module.name for module in self._job.modules),
            kept_partition=self._kept,
            tried=tuple(self._tried.values()),
            skipped=len(self._skipped),
            chosen=self._leaders[0].choice if self._leaders else None,
        )

    def _next(self) -> Choice | None:
        """Choice to try next; None where there is none left.

        After the starts, every so often one far away gets its turn; else one beside the best that has such.
        """
        if len(self._tried) == AFTER:
            self._ahead = self.space.others()[::-1]
        while self._ahead and self._ahead[-1] in self._tried:
            self._ahead.pop()
        if self._ahead and (len(self._tried) < AFTER or len(self._tried) % EVERY == 0):
            return self._ahead.pop()
        for choice in sorted(self._tried.keys() - self._surrounded, key=self._rank):
            near = [other for other in self.space.near(choice) if self._is_worth_a_try(other)]
            if near:
                return min(near, key=lambda other: (self.estimator.makespan_us(other), other))
            self._surrounded.add(choice)
        return self._ahead.pop() if self._ahead else None

    def _rank(self, choice: Choice) -> tuple[float, float, Choice]:
        """Place among those tried: by score; where nothing fits, by how finely memory is cut."""
        score = self._tried[choice].score
        fineness = choice.slices * max(choice.parts)
        return score, -fineness if score == math.inf else 0.0, choice

    def _is_worth_a_try(self, choice: Choice) -> bool:
        """Whether a choice is new, and estimated to be shorter than the best one if no rank ever waits."""
        if choice in self._tried or choice in self._skipped:
            return False
        if self._leaders and self.estimator.load_us(choice) >= _score(self._leaders[0].chosen):
            self._skipped.add(choice)
            return False
        return True

    def _try(self, choice: Choice) -> None:
        """Schedule a choice quickly, as thrifty as the best one known."""
        saving = saving_of(self._leaders[0].chosen.candidate.guide) if self._leaders else None
        began = self.stopping.progress()
        outcome, found = self.trials.schedule(choice, seeds=SEEDS, saving=saving)
        self._longest_try = max(self._longest_try, self.stopping.progress() - began)
        self._tried[choice] = Tried(choice=choice, outcome=outcome, score=_score(outcome))
        if found:
            if self._on_first and not self._leaders:
                self._on_first(found)
            self._leaders.append(Leader(choice=choice, chosen=found))
            self._leaders = sorted(self._leaders, key=_place)[:LEADERS]
        if self._on_progress:
            self._on_progress(len(self._tried), self._leaders[0].chosen.makespan_us if self._leaders else None)

    def _finished(self) -> Chosen:
        """Best of the few best choices with more seeds and CP-SAT's splits, as many as there is time for."""
        for place, leader in enumerate(list(self._leaders)):
            if self.stopping.progress() + AGAIN * self._longest_try > (1.0 if place else OVERRUN):
                break
            better = self.trials.again(leader.choice, leader.chosen, seeds=MORE_SEEDS)
            self._leaders[place] = Leader(choice=leader.choice, chosen=better)
        self._leaders.sort(key=_place)
        return self._leaders[0].chosen

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
            self._leaders = [Leader(choice=choice, chosen=chosen)]
            return chosen
        if refused is None:
            raise RuntimeError("no choice fits, and none says why")
        raise refused


def _score(outcome: Outcome | Chosen) -> float:
    """What choices are compared by: the makespan, with an allowance for tasks; infinite where it does not fit."""
    if outcome.makespan_us is None:
        return math.inf
    return outcome.makespan_us * (1.0 + TASKS_WEIGHT * outcome.num_tasks)


def _place(leader: Leader) -> float:
    return _score(leader.chosen)
