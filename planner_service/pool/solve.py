"""One solve, from the queue to its result."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from planner_service import logs

if TYPE_CHECKING:
    from collections.abc import Callable

    from dip.errors import CannotFitError, InvalidRequestError

    from planner_service.pool.messages import SplitPlan, Task


FRESH_START_S: Final = 3.0
"""About what a worker takes from being killed until the next one is ready."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """A plan.

    Parameters
    ----------
    elapsed_ms
        How long a worker had the task.
    interrupted
        Why the search was ended from outside with the best plan so far; empty where it ended by itself.
    """

    plan: SplitPlan
    elapsed_ms: int
    interrupted: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Partitioned:
    """A serialized Partition."""

    partition: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Refused:
    """The request breaks the contract or cannot fit: no process would do better."""

    error: InvalidRequestError | CannotFitError


@dataclass(frozen=True, kw_only=True, slots=True)
class Failed:
    """The solver died or overran with nothing to show, and so did the fallback."""

    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Cancelled:
    """Nobody wants the result any more."""


Result = Planned | Partitioned | Refused | Failed | Cancelled


class Solve:
    """A task in the pool. Its result is a value, never an exception or a cancellation.

    Parameters
    ----------
    task
        What to do.
    lane
        The job; lanes take turns.
    order
        Within a lane the lowest goes first.
    limit_s
        Wall clock from the moment when a worker has the task to the moment when it is killed.

    Attributes
    ----------
    log_fields
        What lines of the log about it carry: what was bound where it was made.
    """

    def __init__(self, task: Task, *, lane: str, order: tuple[int, ...], limit_s: float) -> None:
        self.task = task
        self.lane = lane
        self.order = order
        self.limit_s = limit_s
        self.best: SplitPlan | None = None
        self.fresh_starts = 0
        self.started_s = 0.0
        self.log_fields = logs.bound_fields()
        self._listener: Callable[[Solve], object] | None = None
        self._result: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._abandon: Callable[[], None] | None = None

    @property
    def done(self) -> bool:
        """Whether there is a result."""
        return self._result.done()

    async def result(self) -> Result:
        """Wait for the result. Cancelling the wait does not cancel the solve."""
        return await asyncio.shield(self._result)

    def resolve(self, result: Result) -> None:
        """Set the result unless there is one."""
        if not self._result.done():
            self._result.set_result(result)
            if self._listener is not None:
                self._listener(self)

    def on_result(self, listener: Callable[[Solve], object]) -> None:
        """Call `listener` as soon as there is a result."""
        self._listener = listener

    def runs_on(self, abandon: Callable[[], None] | None) -> None:
        """Say how to stop the worker that has the task; None where none has it."""
        self._abandon = abandon

    def withdraw(self) -> None:
        """Nobody wants the result any more: drop it; a worker that has the task may end it in its own time.

        Killing the worker would cost the next solves a fresh start, and where iterations are shorter than that, all
        of them.
        """
        self.resolve(Cancelled())

    def give_up(self) -> None:
        """Nobody wants the result any more, and the worker is wanted for others: end it by whichever way is sooner."""
        runs_out_s = self.started_s + self.limit_s - time.monotonic()
        if self._abandon is not None and runs_out_s < FRESH_START_S:
            self.withdraw()
        else:
            self.cancel()

    def cancel(self) -> None:
        """Give up at once: the worker that has the task is killed."""
        if self._result.done():
            return
        self.resolve(Cancelled())
        if self._abandon is not None:
            self._abandon()
