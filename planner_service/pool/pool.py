"""The pool: a few worker processes, replaced whenever they die, overrun or work for nobody."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from dip.errors import CannotFitError, InvalidRequestError

from planner_service import logs, metrics
from planner_service.loops import start_loop
from planner_service.pool.messages import PlanTask, SplitPlan
from planner_service.pool.process import WorkerLostError, WorkerProcess, describe_overrun
from planner_service.pool.queue import SolveQueue
from planner_service.pool.solve import Failed, Partitioned, Planned, Refused, Result, Solve

if TYPE_CHECKING:
    from collections.abc import Callable

    from planner_service.pool.messages import Finished, Task

DEFAULT_ENGINE: Final = "planner_service.pool.engine"
FALLBACK_LIMIT_S: Final = 10.0
"""The fixed schedule takes milliseconds; the rest is for a machine whose idle priority gets little."""

HURRY_EVERY_S: Final = 60.0
"""A start costs some seconds of a core. At idle priority, beside a training that leaves nothing over, these last half a
minute; but a pool whose workers die again and again must not take them from training each time."""

_STARTS_BEFORE_FAILING = 3
_LONGEST_PAUSE_S = 5.0
_FRESH_STARTS = 3
_SLOW_START_S = 5.0
"""From when on the log tells: an operator who sees no plans for a while finds out why."""

_log = logging.getLogger(__name__)


class SolverPool:
    """Runs solves in `workers` processes. For use from one event loop, which never waits for a solver.

    Whatever happens to a solver, each solve gets a result within its limit once its turn has come: what the
    search ended with; else the best plan that it had sent; else what needs no search, the fixed schedule or the default
    partition, made in a worker; else the reason.

    Parameters
    ----------
    workers
        Number of processes, at least 1.
    memory_bytes
        What each may hold.
    engine
        Module that solves: see `planner_service.pool.engine`.

    Attributes
    ----------
    was_ready
        Whether a worker was ready at least once. It stays so: workers that are lost are replaced.
    """

    def __init__(self, *, workers: int, memory_bytes: int, engine: str = DEFAULT_ENGINE) -> None:
        if workers < 1:
            raise ValueError(f"workers: holds {workers}; allowed is 1 or more")
        self.workers = workers
        self._memory_bytes = memory_bytes
        self._engine = engine
        self._queue = SolveQueue()
        self._unfinished: set[Solve] = set()
        self._tenders: list[asyncio.Task[None]] = []
        self._failed_starts = 0
        self._busy = 0
        self._draining = False
        self._ready = 0
        self._hurried_s = -math.inf
        self._on_idle: Callable[[], None] | None = None
        self._on_ready: Callable[[], None] | None = None
        self.was_ready = False

    @property
    def idle(self) -> int:
        """Workers that are ready and have nothing to do."""
        return self._queue.num_getters

    @property
    def waiting(self) -> int:
        """Solves that no worker has yet."""
        return len(self._queue)

    @property
    def broken(self) -> bool:
        """Whether workers do not start."""
        return self._failed_starts >= _STARTS_BEFORE_FAILING

    def on_idle(self, listener: Callable[[], None]) -> None:
        """Call `listener` when a worker becomes idle, a solve has to wait, or the pool turns out to be broken."""
        self._on_idle = listener
        self._queue.on_getter(listener)

    def on_ready(self, listener: Callable[[], None]) -> None:
        """Call `listener` once: when the first worker is ready."""
        self._on_ready = listener

    def start(self) -> None:
        """Spawn the workers, without waiting for them."""
        metrics.pool_opened(self.workers)
        self._tenders = [start_loop(self._tend(), f"worker {index}") for index in range(self.workers)]

    async def close(self) -> None:
        """Cancel every solve and kill every worker."""
        self.drain()
        for tender in self._tenders:
            tender.cancel()
        await asyncio.gather(*self._tenders, return_exceptions=True)
        if self._tenders:
            metrics.pool_closed(self.workers)
        self._tenders = []

    def drain(self) -> None:
        """Cancel every solve, waiting or running, and every one that is still submitted."""
        self._draining = True
        for solve in list(self._unfinished):
            solve.cancel()

    def submit(self, task: Task, *, lane: str, order: tuple[int, ...], limit_s: float) -> Solve:
        """Queue a task; see `Solve` for the parameters."""
        solve = Solve(task, lane=lane, order=order, limit_s=limit_s)
        if self._draining:
            solve.cancel()
            return solve
        self._unfinished.add(solve)
        solve.on_result(self._unfinished.discard)
        self._queue.put(solve)
        if not self.idle:
            self._say_idle()
        return solve

    async def _tend(self) -> None:
        """Keep one worker alive and busy, for ever."""
        while True:
            began_s = time.monotonic()
            try:
                worker = await WorkerProcess.start(
                    engine=self._engine, memory_bytes=self._memory_bytes, hurry=self._may_hurry()
                )
            except (WorkerLostError, OSError) as error:  # OSError: no process or descriptor to be had
                metrics.worker_lost("unready")
                await self._pause(error)
                continue
            self._failed_starts = 0
            self._ready += 1
            metrics.worker_ready()
            if (took_s := time.monotonic() - began_s) > _SLOW_START_S:
                _log.info("a solver process was slow to start", extra=logs.fields(took_ms=int(took_s * 1000)))
            self._say_ready()
            try:
                while (solve := await self._next(worker)) is not None:
                    if solve.done:  # cancelled since it left the queue: nobody would end it any more
                        continue
                    worker.works_on(solve.log_fields)
                    with logs.afresh(**solve.log_fields):
                        await self._run(worker, solve)
                    worker.works_on({})
                metrics.worker_lost("died")  # with nothing to do
            except WorkerLostError as error:
                _log.debug("worker is replaced: %s", error)
            finally:
                self._ready -= 1
                metrics.worker_gone()
                await worker.end()

    def _may_hurry(self) -> bool:
        """Whether a worker may start before it gives way to training: where no other plans, and seldom."""
        now_s = time.monotonic()
        if self._ready or now_s < self._hurried_s + HURRY_EVERY_S:
            return False
        self._hurried_s = now_s
        return True

    async def _pause(self, error: WorkerLostError | OSError) -> None:
        """Wait longer after each failed start; let no solve wait for workers that never come."""
        self._failed_starts += 1
        _log.error("worker does not start, attempt %d: %s", self._failed_starts, error)
        if self.broken:
            self._say_idle()
            for solve in self._queue.drain():
                solve.resolve(Failed(reason=f"the planner's workers do not start: {error}"))
        await asyncio.sleep(min(_LONGEST_PAUSE_S, 0.1 * 2**self._failed_starts))

    async def _next(self, worker: WorkerProcess) -> Solve | None:
        """Take the next solve; None once the worker is dead, which loses no solve."""
        taking = asyncio.create_task(self._queue.get())
        try:
            await asyncio.wait({taking, worker.exited}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not taking.done():
                taking.cancel()
        if worker.exited.done():
            if taking.done() and not taking.cancelled():
                self._queue.put(taking.result())
            return None
        return taking.result()

    async def _run(self, worker: WorkerProcess, solve: Solve) -> None:
        """Have one solve done; raises WorkerLostError where that cost the worker."""

        def keep(plan: SplitPlan) -> None:
            solve.best = plan

        def overdue() -> None:
            if solve.best is not None:
                self._save(solve, describe_overrun(solve.limit_s))

        solve.runs_on(worker.kill)
        solve.started_s = time.monotonic()
        self._busy += 1
        metrics.worker_busy()
        try:
            finished = await worker.run(self._with_cores(solve.task), limit_s=solve.limit_s, keep=keep, overdue=overdue)
        except WorkerLostError as error:
            metrics.worker_lost("overran" if error.overran else "cancelled" if solve.done else "died")
            if not solve.done:
                if error.blameless and solve.fresh_starts < _FRESH_STARTS:
                    solve.fresh_starts += 1
                    self._queue.put(solve)
                    raise
                _log.warning("a solve lost its worker", extra=logs.fields(reason=str(error)))
                self._save(solve, str(error))
            raise
        finally:
            self._busy -= 1
            metrics.worker_free()
            metrics.solve_ended(
                "plan" if isinstance(solve.task, PlanTask) else "partition", time.monotonic() - solve.started_s
            )
            solve.runs_on(None)
        result = _result(solve, finished)
        if isinstance(result, Planned) and (plan := result.plan).steps:
            metrics.plan_found(
                makespan_us=plan.makespan_us, lower_bound_us=plan.lower_bound_us, search_ms=plan.search_ms
            )
        solve.resolve(result)

    def _with_cores(self, task: Task) -> Task:
        """Let a search use what cores the other workers leave idle: each has one of its own."""
        if not isinstance(task, PlanTask):
            return task
        return replace(task, cores=max(1, self.workers // (self._busy + len(self._queue))))

    def _say_ready(self) -> None:
        if not self.was_ready:
            self.was_ready = True
            if self._on_ready is not None:
                self._on_ready()

    def _say_idle(self) -> None:
        if self._on_idle is not None:
            self._on_idle()

    def _save(self, solve: Solve, reason: str) -> None:
        """Make what can be made of a solve whose worker is lost."""
        if solve.best is not None:
            solve.resolve(Planned(plan=solve.best, elapsed_ms=_elapsed_ms(solve), interrupted=reason))
        elif not solve.task.fallback:
            solve.task = replace(solve.task, fallback=True)
            solve.limit_s = FALLBACK_LIMIT_S
            self._queue.put(solve)
        else:
            solve.resolve(Failed(reason=reason))


def _elapsed_ms(solve: Solve) -> int:
    return int((time.monotonic() - solve.started_s) * 1000)


def _result(solve: Solve, finished: Finished) -> Result:
    match finished.result if finished.result is not None else solve.best:
        case SplitPlan() as plan:
            return Planned(plan=plan, elapsed_ms=_elapsed_ms(solve))
        case bytes() as partition:
            return Partitioned(partition=partition)
        case InvalidRequestError() | CannotFitError() as error:
            return Refused(error=error)
        case None:
            return Failed(reason="the solver ended without a plan")
