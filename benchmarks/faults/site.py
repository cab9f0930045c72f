"""What stands around the training: a Redis, two planners that share it, and the networks between them."""

from __future__ import annotations

import contextlib
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from benchmarks.faults import outcomes
from benchmarks.faults.network import Network
from benchmarks.faults.start import Plan
from benchmarks.faults.training import Training
from benchmarks.planner_process import PlannerProcess
from benchmarks.redis_server import RedisServer
from planner_service import settings as planner_names
from trainer_agent import settings as agent_names

if TYPE_CHECKING:
    import random
    from types import TracebackType

PLANNERS: Final = 2
RANKS, REPLICAS = 4, 2
JOB_ID: Final = "faults"

_CLOCK = "benchmarks.faults.jumping_clock"
_LEASE_MS = 1_000
_STEP_TIMEOUT_S = 60
_OUTCOME_S = 60.0
# Nothing that was accepted is dropped for being old before it has been looked at.
_KEPT = {planner_names.KEPT_ITERATIONS: "100000", planner_names.KEPT_BYTES: str(2**32)}


class Site:
    """All of it, started; ended with the block.

    Parameters
    ----------
    batch_ms
        How often the ranks' loaders have a batch.
    budget_ms
        Search time of a plan.
    haste
        Faults last so many times shorter.
    partitions
        Whether planners partition the model at each start; otherwise the ranks say that the default is loaded.

    Attributes
    ----------
    redis
        Every write that it has answered is on its disk.
    networks
        From each planner to Redis.
    planners
        Each with one solver, on a clock of its own.
    training
        Each replica's ranks prefer one planner and the other in turn.
    lost_batches
        What is wrong with batches that were accepted and have no outcome, as far as they were looked for.
    """

    def __init__(self, *, batch_ms: int, budget_ms: int, haste: float, partitions: bool) -> None:
        self._batch_ms, self._budget_ms = batch_ms, budget_ms
        self._haste, self._partitions = haste, partitions
        self._open = contextlib.ExitStack()
        self.networks: list[Network] = []
        self.planners: list[PlannerProcess] = []
        self.lost_batches: list[str] = []
        self._emptied_s = 0.0

    def __enter__(self) -> Self:
        with self._open:
            directory = Path(self._open.enter_context(tempfile.TemporaryDirectory(prefix="dip-faults-")))
            self.redis = self._open.enter_context(RedisServer(appends=True))
            for _ in range(PLANNERS):
                network = self._open.enter_context(Network(self.redis.port))
                self.networks.append(network)
                store = {planner_names.STORE: f"redis://127.0.0.1:{network.port}/0"}
                own = store | _KEPT | {planner_names.LEASE_MS: str(_LEASE_MS)}
                self.planners.append(self._open.enter_context(PlannerProcess(own, module=_CLOCK)))
            self.training = Training(self._plan(), directory)
            self._open.callback(self.training.close)
            self._open = self._open.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def last(self, draw: random.Random, least_s: float, most_s: float) -> None:
        """Let a fault last."""
        time.sleep(draw.uniform(least_s, most_s) / self._haste)

    def empty_redis(self) -> None:
        """Start a killed Redis without its data."""
        self.redis.lose_data()
        self.redis.start()
        self._emptied_s = time.monotonic()

    def look_for_lost_batches(self) -> None:
        """Look for accepted batches of this attempt that have no outcome, though Redis has not lost them itself."""
        accepted = [one for one in self.training.current.accepted if one.at_s > self._emptied_s]
        self.lost_batches += outcomes.lost(
            self.redis.url,
            JOB_ID,
            accepted,
            executed=[one for start in self.training.starts for one in start.executed],
            patience_s=_OUTCOME_S,
        )

    def logs(self) -> dict[str, str]:
        """Return what all processes but Redis have written for people, by name."""
        texts = {f"planner{number}": planner.log() for number, planner in enumerate(self.planners)}
        for start in self.training.starts:
            texts |= start.logs()
        return texts

    def _plan(self) -> Plan:
        addresses = [planner.address for planner in self.planners]
        return Plan(
            ranks=RANKS,
            replicas=REPLICAS,
            endpoints=[",".join(addresses[:: 1 if place % PLANNERS == 0 else -1]) for place in range(RANKS * REPLICAS)],
            environment={
                agent_names.JOB_ID: JOB_ID,
                agent_names.STEP_TIMEOUT_S: str(_STEP_TIMEOUT_S),
            },
            batch_ms=self._batch_ms,
            budget_ms=self._budget_ms,
            partitions=self._partitions,
        )
