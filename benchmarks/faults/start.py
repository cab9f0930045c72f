"""One start of the training job: its processes, and what they said."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Final

from benchmarks.faults import rank_process
from benchmarks.faults.messages import Accepted, Began, Ended, Executed, Failed, Leave
from benchmarks.faults.rank_process import Run
from trainer_agent import settings as agent_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess
    from pathlib import Path

    from benchmarks.faults.messages import Message

PATIENCE_S: Final = 120.0
"""How long ranks may take to begin, to run another iteration, to end."""


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
                    environment=plan.environment | {agent_names.PLANNER_ENDPOINT: endpoint},
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
