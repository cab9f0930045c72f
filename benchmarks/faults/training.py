"""The training run that faults happen to: its processes, the starts of the job, what the ranks said."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Final

from benchmarks.faults import checkpoints, rank_process
from benchmarks.faults.messages import Accepted, Began, Ended, Executed, Failed, Leave
from benchmarks.faults.rank_process import Run

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess
    from pathlib import Path

    from benchmarks.faults.messages import Message

PATIENCE_S: Final = 120.0
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
class Plan:
    """What is trained.

    Parameters
    ----------
    endpoints
        ``DIP_PLANNER_ENDPOINT`` of each process.
    environment
        Further settings of all of them.
    batch_ms, budget_ms, partitions
        See `Site`; where plans do not come, iterations get longer.
    """

    ranks: int
    replicas: int
    endpoints: Sequence[str]
    environment: dict[str, str]
    batch_ms: int
    budget_ms: int
    partitions: bool


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


class Start:
    """One start of the job: an attempt.

    Attributes
    ----------
    number
        Counted from 0; the seed of its data.
    first_iteration
        Where it begins.
    resumed
        Number of the start whose checkpoint of that iteration it took; None: it began afresh.
    executed, accepted
        What its ranks said.
    attempt
        Its number at the planners, once it has begun.
    """

    def __init__(self, number: int, plan: Plan, directory: Path, first_iteration: int, resumed: Start | None) -> None:
        self.number = number
        self.first_iteration = first_iteration
        self.resumed = resumed.number if resumed else None
        self.directory = directory
        self.executed: list[Executed] = []
        self.accepted: list[Accepted] = []
        self.began: list[Began] = []
        self.ended: list[Ended] = []
        self.killed = False
        self.count_by_iteration: Counter[int] = Counter()
        directory.mkdir(parents=True)
        self._ranks = [
            _start_rank(
                Run(
                    place=place,
                    ranks=plan.ranks,
                    replicas=plan.replicas,
                    directory=directory,
                    environment=plan.environment | {"DIP_PLANNER_ENDPOINT": endpoint},
                    seed=number,
                    first_iteration=first_iteration,
                    resumed_from=resumed.directory if resumed else None,
                    budget_ms=plan.budget_ms,
                    partitions=plan.partitions,
                )
            )
            for place, endpoint in enumerate(plan.endpoints)
        ]

    @property
    def attempt(self) -> int:
        """Its number at the planners, once it has begun."""
        return self.began[0].attempt

    def allow(self, leave: Leave | None) -> None:
        """Let all ranks run on; None: end where they stand."""
        for _, connection in self._ranks:
            try:
                connection.send(leave)
            except OSError:  # it is gone, as is read on the same connection
                continue

    def messages(self) -> Iterator[Message]:
        """Yield what the ranks say until they have ended; a rank that ended without saying so failed."""
        talking, ended = [connection for _, connection in self._ranks], 0
        while talking:
            ready = wait(talking)
            for connection in [one for one in talking if one in ready]:
                try:
                    message: Message = connection.recv()
                except (EOFError, OSError):
                    talking.remove(connection)
                    continue
                ended += isinstance(message, Ended)
                yield message
        if ended < len(self._ranks) and not self.killed:
            yield Failed(error=f"{len(self._ranks) - ended} ranks ended early")

    def kill(self) -> None:
        """Kill all ranks at once."""
        self.killed = True
        for process, _ in self._ranks:
            process.kill()
        self.join()

    def join(self) -> None:
        """Wait until all ranks are gone."""
        for process, _ in self._ranks:
            process.join(PATIENCE_S)

    def logs(self) -> dict[str, str]:
        """Return what the ranks wrote for people, by file."""
        files = sorted(self.directory.glob("rank*.log"))
        return {f"{self.directory.name}-{file.stem}": file.read_text(errors="replace") for file in files}


def _start_rank(run: Run) -> tuple[BaseProcess, Connection]:
    """Fork a rank from a server that has torch loaded and nothing begun."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([rank_process.__name__])
    ours, theirs = context.Pipe()
    process = context.Process(target=rank_process.main, args=(run, theirs), daemon=True)
    process.start()
    theirs.close()
    return process, ours


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
