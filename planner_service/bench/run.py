"""Runs suites: case by case, kept as they come, until all is measured or the time is up."""

from __future__ import annotations

import multiprocessing
import time
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from planner_service.baselines.paper import paper_plan
from planner_service.bench.peers import load_peers
from planner_service.bench.result import Result, SuiteResult, these_versions, this_machine
from planner_service.bench.suites.registry import SUITES
from planner_service.warmup import compile_kernels, load_kernels, small_requests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from planner_service.bench.case import Case, Row
    from planner_service.bench.partial import Partial
    from planner_service.bench.settings import Settings

WARM_UP_MS = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """A case of a suite to be measured."""

    suite: str
    case: Case

    @property
    def name(self) -> str:
        """Name that no other has."""
        return f"{self.suite}: {self.case.name}"


class Run:
    """One run of suites.

    Parameters
    ----------
    suites
        Their names.
    settings
        For all of them.
    partial
        Where finished cases are kept, and found again.
    say
        Told how it goes, a line at a time.
    jobs
        Processes that measure side by side.
    time_limit_s
        No case is started after so long; what was not started is listed in the result.
    clock
        Seconds that never go back.
    """

    def __init__(
        self,
        suites: Sequence[str],
        settings: Settings,
        partial: Partial,
        say: Callable[[str], None],
        *,
        jobs: int = 1,
        time_limit_s: float = float("inf"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.suites, self.settings, self.partial, self.say, self.jobs = suites, settings, partial, say, jobs
        self._limit_s, self._clock, self._began = time_limit_s, clock, clock()
        self._absent = load_peers(settings.baselines).absent
        self._all = [Piece(suite=name, case=case) for name in suites for case in SUITES[name].cases(settings)]

    def result(self) -> Result:
        """Measure what is left, those suites last that must be alone, and return all of it."""
        left = [piece for piece in self._all if piece.name not in self.partial.finished]
        left.sort(key=lambda piece: SUITES[piece.suite].alone)
        self._announce(left)
        for done, (piece, seconds, rows) in enumerate(self._measured(left), start=1):
            self.partial.add(piece.name, seconds, rows)
            remaining = _minutes(self._expected_s(left[done:]))
            self.say(f"[{done}/{len(left)}] {piece.name}: {seconds:.1f} s; about {remaining} left")
        return Result(suites={name: self._suite(name) for name in self.suites})

    def _expected_s(self, pieces: Iterable[Piece]) -> float:
        return sum(piece.case.seconds / self._effort(piece.suite)[1] for piece in pieces)

    def _effort(self, suite: str) -> tuple[Settings, int]:
        """Settings of a suite, and how many of its cases are measured side by side."""
        if not SUITES[suite].alone:
            return self.settings, self.jobs
        return replace(self.settings, cores=self.settings.cores * self.jobs), 1

    def _announce(self, left: Sequence[Piece]) -> None:
        for name in self.suites:
            of_suite = [piece for piece in left if piece.suite == name]
            self.say(f"{name}: {len(of_suite)} cases, about {_minutes(self._expected_s(of_suite))}")
        known = len(self._all) - len(left)
        if known:
            self.say(f"{known} cases were measured before in {self.partial.path}")
        for absent in self._absent:
            self.say(f"absent: {absent}")

    def _measured(self, left: Sequence[Piece]) -> Iterator[tuple[Piece, float, list[Row]]]:
        together = [piece for piece in left if self._effort(piece.suite)[1] > 1]
        if together:
            yield from self._side_by_side(together)
        one_by_one = left[len(together) :]
        if one_by_one:
            warm_up()
        for piece in one_by_one:
            if self._is_late():
                return
            seconds, rows = measure(piece, self._effort(piece.suite)[0])
            yield piece, seconds, rows

    def _side_by_side(self, pieces: Sequence[Piece]) -> Iterator[tuple[Piece, float, list[Row]]]:
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(self.jobs, mp_context=spawn, initializer=warm_up) as processes:
            queue = deque(pieces)
            running: dict[Future[tuple[float, list[Row]]], Piece] = {}
            while queue or running:
                while queue and len(running) < self.jobs and not self._is_late():
                    piece = queue.popleft()
                    running[processes.submit(measure, piece, self.settings)] = piece
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(future), *future.result()

    def _is_late(self) -> bool:
        return self._clock() - self._began > self._limit_s

    def _suite(self, name: str) -> SuiteResult:
        settings, side_by_side = self._effort(name)
        names = [piece.name for piece in self._all if piece.suite == name]
        finished = [self.partial.finished[piece] for piece in names if piece in self.partial.finished]
        return SuiteResult(
            settings=settings.json() | {"jobs": side_by_side},
            machine=this_machine(),
            versions=these_versions(),
            seconds=round(sum(seconds for seconds, _ in finished), 1),
            rows=tuple(row for _, rows in finished for row in rows),
            unfinished=tuple(piece for piece in names if piece not in self.partial.finished),
            absent=self._absent,
        )


def measure(piece: Piece, settings: Settings) -> tuple[float, list[Row]]:
    """Measure one case; returns what it took and its rows."""
    began = time.perf_counter()
    rows = SUITES[piece.suite].measure(piece.case, settings)
    return time.perf_counter() - began, rows


def warm_up() -> None:
    """Load compiled code, so that the first case does not pay for it; one process compiles what is not."""
    compile_kernels()
    load_kernels()
    paper_plan(small_requests()[0], budget_ms=WARM_UP_MS, seed=0)


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"
