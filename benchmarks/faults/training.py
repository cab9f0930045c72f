"""The training run that faults happen to: the job's starts, how far they are, and whether they run plans."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from benchmarks.faults import checkpoints
from benchmarks.faults.messages import Accepted, Began, Ended, Executed, Failed, Leave
from benchmarks.faults.start import PATIENCE_S, Start

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.faults.messages import Message
    from benchmarks.faults.start import Plan

STEADY: Final = 4
"""So many iterations in a row with plans are no remnant of what was planned before a fault."""

_SLOWER_AFTER_S = 15.0
_SLOWER_BY = 1.5
_PLANS = "planned schedules come back"
_AHEAD = 4  # iterations that ranks may run beyond what all have run
_OLDER = 3  # checkpoints that a new start chooses from


class TrainingFailedError(RuntimeError):
    """A rank ended by itself, or the training does not get on."""


class WaitedInVainError(TrainingFailedError):
    """What must come did not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Completed:
    """An iteration that all ranks have run.

    Parameters
    ----------
    fallbacks
        Replicas that ran the fallback.
    at_s
        When the last rank had.
    """

    start: int
    iteration: int
    fallbacks: int
    at_s: float


class Training:
    """All starts of the job, one after the other.

    Attributes
    ----------
    starts
        All of them.
    completed
        All iterations that every rank of a start has run, in order.
    batch_ms
        How often the loaders have a batch by now.
    """

    def __init__(self, plan: Plan, directory: Path) -> None:
        self._plan = plan
        self._directory = directory
        self._changed = threading.Condition()
        self._allowing = True
        self.batch_ms = plan.batch_ms
        self._failure = ""
        self._reader: threading.Thread | None = None
        self.starts: list[Start] = []
        self.completed: list[Completed] = []

    @property
    def current(self) -> Start:
        """The start that runs, or ran last."""
        return self.starts[-1]

    def begin(self, first_iteration: int = 0, resumed: Start | None = None) -> None:
        """Start the job and wait until all ranks train."""
        number = len(self.starts)
        start = Start(number, self._plan, self._directory / f"start{number}", first_iteration, resumed)
        self.starts.append(start)
        self._reader = threading.Thread(target=self._read, args=(start,), daemon=True)
        self._reader.start()
        self._wait(lambda: len(start.began) == len(self._plan.endpoints), PATIENCE_S, "the ranks begin")
        start.allow(self._leave(first_iteration))

    def kill(self) -> None:
        """Kill all ranks at once, wherever they are."""
        self.current.kill()
        if self._reader is not None:
            self._reader.join(PATIENCE_S)

    def resume(self, draw: random.Random) -> None:
        """Start the job again, at one of the latest checkpoints."""
        before = self.current
        last = max((done.iteration for done in self.completed if done.start == before.number), default=-1)
        saved = checkpoints.complete(before.directory, ranks=self._plan.ranks)
        older = [iteration for iteration in saved if iteration <= last][-_OLDER:]
        if older:
            self.begin(draw.choice(older), before)
        else:  # it was killed before it had run an iteration: once more
            self.begin(before.first_iteration, None if before.resumed is None else self.starts[before.resumed])

    def finish(self) -> None:
        """Let the ranks stop at one iteration, and end."""
        with self._changed:
            self._allowing = False
            self.current.allow(None)
        self._wait(lambda: len(self.current.ended) == len(self._plan.endpoints), PATIENCE_S, "the ranks end")
        self.current.join()

    def wait_for_iterations(self, count: int) -> None:
        """Wait until so many iterations have been run, those that were run again included."""
        while (before := len(self.completed)) < count:
            self._wait(partial(self._has_more_than, before), PATIENCE_S, "another iteration is run")

    def wait_for_plans(self, since_s: float, patience_s: float) -> float:
        """Wait until so many iterations in a row have been run with plans; return when the first of them was.

        Where that takes long, iterations get longer: planners cannot keep pace on a machine that is slow, or has much
        else to do.
        """
        until_s = time.monotonic() + patience_s
        while (steady_s := self._steady_since(since_s)) is None:
            left_s = until_s - time.monotonic()
            try:
                self._wait(lambda: self._steady_since(since_s) is not None, min(left_s, _SLOWER_AFTER_S), _PLANS)
            except WaitedInVainError:
                if left_s <= _SLOWER_AFTER_S:
                    raise
                self.batch_ms = int(self.batch_ms * _SLOWER_BY)
        return steady_s

    def close(self) -> None:
        """End all processes."""
        for start in self.starts:
            start.kill()

    def _leave(self, next_iteration: int) -> Leave:
        return Leave(stop_before=next_iteration + _AHEAD, batch_ms=self.batch_ms)

    def _has_more_than(self, count: int) -> bool:
        return len(self.completed) > count

    def _steady_since(self, since_s: float) -> float | None:
        later = [done for done in self.completed if done.at_s >= since_s and done.start == self.current.number]
        steady: list[Completed] = []
        for done in later:
            steady = [] if done.fallbacks else [*steady, done]
            if len(steady) == STEADY:
                return steady[0].at_s
        return None

    def _wait(self, condition: Callable[[], bool], patience_s: float, what: str) -> None:
        with self._changed:
            fulfilled = self._changed.wait_for(lambda: bool(self._failure) or condition(), patience_s)
            if self._failure:
                raise TrainingFailedError(self._failure)
            if not fulfilled:
                raise WaitedInVainError(f"waited {patience_s:g} s in vain until {what}")

    def _read(self, start: Start) -> None:
        for message in start.messages():
            with self._changed:
                self._note(start, message)
                self._changed.notify_all()

    def _note(self, start: Start, message: Message) -> None:
        match message:
            case Began():
                start.began.append(message)
            case Accepted():
                start.accepted.append(message)
            case Ended():
                start.ended.append(message)
            case Failed(error=error):
                self._failure = self._failure or ("" if start.killed else error)
            case Executed(iteration=iteration):
                start.executed.append(message)
                start.count_by_iteration[iteration] += 1
                if start.count_by_iteration[iteration] == len(self._plan.endpoints):
                    self._complete(start, iteration)

    def _complete(self, start: Start, iteration: int) -> None:
        ran = [one for one in start.executed if one.iteration == iteration]
        fallen_back = {one.replica for one in ran if one.fallback}
        self.completed.append(
            Completed(
                start=start.number, iteration=iteration, fallbacks=len(fallen_back), at_s=max(one.at_s for one in ran)
            )
        )
        if self._allowing:
            start.allow(self._leave(iteration + 1))
