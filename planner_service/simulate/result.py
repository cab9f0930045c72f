"""What a run in virtual time shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class TaskRun(NamedTuple):
    """One compute action as it ran.

    Parameters
    ----------
    rank, action
        Its rank and its place in that rank's schedule.
    kind, module, chunk, sub_microbatch
        What it computes.
    start_us, end_us
        When.
    starts_bytes, ends_bytes
        How what its rank holds changes when it starts, and when it ends.
    after
        The task whose end decided when this one starts, as an index into the run's tasks; -1 where it starts at 0.
    """

    rank: int
    action: int
    kind: int
    module: str
    chunk: int
    sub_microbatch: int
    start_us: int
    end_us: int
    starts_bytes: int
    ends_bytes: int
    after: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RankUse:
    """How one rank spent the time of the whole run.

    Parameters
    ----------
    busy_us
        Computing.
    waiting_us
        Idle before a task of its own: for what the task consumes.
    idle_us
        All that it does not compute: what it waits, and what is left after its last task.
    static_bytes, peak_bytes
        What it holds for its layers alone, and at most, in all.
    """

    rank: int
    busy_us: int
    waiting_us: int
    idle_us: int
    static_bytes: int
    peak_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Simulation:
    """A whole run.

    Parameters
    ----------
    makespan_us
        End of the last task; 0 where there are none.
    ranks
        In rank order.
    tasks
        All compute actions, by rank, and on each rank in order.
    """

    makespan_us: int
    ranks: tuple[RankUse, ...]
    tasks: tuple[TaskRun, ...]

    @property
    def bubble(self) -> float:
        """Share of all ranks' time in which they are idle; 0 where nothing runs."""
        total = self.makespan_us * len(self.ranks)
        return sum(use.idle_us for use in self.ranks) / total if total else 0.0

    @property
    def peak_bytes(self) -> tuple[int, ...]:
        """What each rank holds at most."""
        return tuple(use.peak_bytes for use in self.ranks)

    def memory(self, rank: int) -> list[tuple[int, int]]:
        """Timeline of what a rank holds: (microsecond, bytes from then on), each later time once, the last bytes of it.

        Raises
        ------
        ValueError
            If there is no such rank.
        """
        if not 0 <= rank < len(self.ranks):
            raise ValueError(f"rank is {rank}, must be 0 to {len(self.ranks) - 1}")
        held = self.ranks[rank].static_bytes
        line = {0: held}
        for task in self.tasks:
            if task.rank == rank:
                line[task.start_us] = held = held + task.starts_bytes
                line[task.end_us] = held = held + task.ends_bytes
        return list(line.items())

    def critical_path(self) -> list[TaskRun]:
        """Tasks in order, each started by the end of the one before, directly or by a transfer, up to the makespan."""
        if not self.tasks:
            return []
        path = [max(self.tasks, key=lambda task: task.end_us)]
        while path[-1].after >= 0:
            path.append(self.tasks[path[-1].after])
        return path[::-1]
