"""Neighbourhoods of CP-SAT: parts of a schedule that are solved anew, chosen by what they brought so far.

A window frees all tasks of some time; a microbatch those of a few groups, wherever they stand among others; the
critical path the tasks that hold the schedule up. Which kind is next, and how many tasks it frees, follows from its
gains for the effort spent, so a kind that brings nothing is seldom tried.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from planner_service.search.criticality import slack_of
from planner_service.search.order_model import OrderModel
from planner_service.search.relaxation import relax

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from planner_service.domain.graph import Ints
    from planner_service.search.order_model import OrderResult
    from planner_service.search.schedule import Schedule

    Free = NDArray[np.bool_]

NEAR = 5e-4
"""Slack of tasks near the critical path, as a share of the makespan."""

MEMORY = 0.9
"""What an earlier gain still counts after one more try."""

CURIOSITY = 0.1
"""Share of tries for kinds that brought nothing."""

BUILD_EFFORT = 0.005
"""What making a model takes, in the solver's unit."""

SMALLEST, LARGEST = 24, 240
"""Tasks that a neighbourhood frees."""

GROWTH, SHRINKAGE = 1.25, 0.85
"""How it grows where it was solved to the end, and shrinks where it was not."""


@dataclass(kw_only=True, slots=True)
class Tally:
    """What one engine contributed.

    Parameters
    ----------
    tries, successes
        Neighbourhoods solved, and those that made the schedule shorter.
    gain_us
        By how much, in sum.
    seconds, effort
        Spent: time, and the solver's own unit.
    """

    tries: int = 0
    successes: int = 0
    gain_us: int = 0
    seconds: float = 0.0
    effort: float = 0.0


@dataclass(kw_only=True, slots=True)
class Kind:
    """A kind of neighbourhood.

    Parameters
    ----------
    draw
        Makes the tasks that are free of a schedule and of how many there are to be.
    reach
        Fixed tasks that a free one may pass, to each side.
    size
        Tasks to free.
    rate
        Recent gain for the effort, microseconds for a unit.
    """

    draw: Callable[[Schedule, int], Free]
    reach: int
    size: float = 80.0
    rate: float = 0.0
    tally: Tally = field(default_factory=Tally)


class Neighbourhoods:
    """One search's neighbourhoods.

    Parameters
    ----------
    seed
        Of all random choices. With the same seed and efforts, and no limit of time, all attempts are the same.
    """

    def __init__(self, *, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.kinds = {
            "CP-SAT window": Kind(draw=self._window, reach=0),
            "CP-SAT microbatch": Kind(draw=self._microbatch, reach=2),
            "CP-SAT critical path": Kind(draw=self._critical_path, reach=2),
        }

    @property
    def tallies(self) -> dict[str, Tally]:
        """What each engine contributed so far."""
        return {name: kind.tally for name, kind in self.kinds.items()}

    def improve(self, schedule: Schedule, *, seconds: float, effort: float) -> Schedule | None:
        """Solve one neighbourhood.

        Parameters
        ----------
        schedule
            Where to start; within the memory of all ranks.
        seconds, effort
            Most to spend: of time, and of the solver's own unit, which no clock decides.

        Returns
        -------
        Schedule or None
            A shorter one, or one as long in which fewer ranks hold up the end: worth going on from. None: no better.
        """
        if not schedule.num_tasks:
            return None
        began = time.monotonic()
        name = self._next()
        kind = self.kinds[name]
        free = kind.draw(schedule, min(round(kind.size), schedule.num_tasks))
        relaxed = relax(schedule.graph, schedule.start, free, reach=kind.reach)
        model = OrderModel(schedule.graph, schedule.start, relaxed)
        left = seconds - (time.monotonic() - began)
        result = model.solve(seconds=left, effort=effort, seed=int(self.random.integers(1 << 31)))
        found = schedule.reordered(result.start, name) if result.start is not None else None
        gain = schedule.makespan_us - found.makespan_us if found else 0
        self._learn(kind, result, gain)
        kind.tally.seconds += time.monotonic() - began
        return found if gain >= 0 else None

    def _next(self) -> str:
        """Name of a kind: each as likely as its gains, and some chance for all."""
        rates = np.array([kind.rate for kind in self.kinds.values()])
        even = np.full(len(rates), 1 / len(rates))
        shares = rates / rates.sum() if rates.sum() > 0 else even
        chances = (1 - CURIOSITY) * shares + CURIOSITY * even
        return list(self.kinds)[int(self.random.choice(len(chances), p=chances))]

    @staticmethod
    def _learn(kind: Kind, result: OrderResult, gain_us: int) -> None:
        tally = kind.tally
        spent = result.effort + BUILD_EFFORT
        tally.tries += 1
        tally.successes += gain_us > 0
        tally.gain_us += gain_us
        tally.effort += spent
        kind.rate = MEMORY * kind.rate + (1 - MEMORY) * gain_us / spent
        kind.size = float(np.clip(kind.size * (GROWTH if result.closed else SHRINKAGE), SMALLEST, LARGEST))

    def _window(self, schedule: Schedule, size: int) -> Free:
        """Tasks that start one after another."""
        return self._slice(schedule, _by_start(schedule), size)

    def _microbatch(self, schedule: Schedule, size: int) -> Free:
        """Tasks of one to three groups that follow each other, in some stretch of time."""
        tasks = _by_start(schedule)
        group = schedule.graph.group[tasks % schedule.graph.num_cells]
        first = tasks[int(self.random.integers(len(tasks)))]
        chosen = schedule.graph.group[first % schedule.graph.num_cells] + np.arange(int(self.random.integers(1, 4)))
        return self._slice(schedule, tasks[np.isin(group, chosen)], size)

    def _critical_path(self, schedule: Schedule, size: int) -> Free:
        """Tasks on the critical path, or near it, in some stretch of time."""
        tasks = _by_start(schedule)
        slack = slack_of(schedule.graph, schedule.start).least
        return self._slice(schedule, tasks[slack[tasks] <= NEAR * schedule.makespan_us], size)

    def _slice(self, schedule: Schedule, tasks: Ints, size: int) -> Free:
        """As many of these tasks as asked for, one after another."""
        first = int(self.random.integers(max(1, len(tasks) - size + 1)))
        free = np.zeros(len(schedule.start), dtype=np.bool_)
        free[tasks[first : first + size]] = True
        return free


def _by_start(schedule: Schedule) -> Ints:
    tasks = np.flatnonzero(schedule.start >= 0)
    return tasks[np.argsort(schedule.start[tasks], kind="stable")]
