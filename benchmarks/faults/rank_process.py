"""One rank of the fault run, in a process of its own: trains as far as it may, and says what it ran.

It trains as far as its latest `Leave` lets it; None in place of one ends it where it stands.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from dip.partition import default_partition
from dip.planner.v1 import planner_pb2 as pb

from benchmarks.faults import checkpoints
from benchmarks.faults.messages import Accepted, Began, Ended, Executed, Failed, Leave
from benchmarks.faults.model import LEARNING_RATE, Batch, TinyChunk, hand_offs, loss_weight, make_spec
from trainer_agent import AgentSettings, Executor, Mesh, TrainerAgent, TrainerAgentError
from trainer_agent.client import CALL_TIMEOUT_S, PlannerClient
from trainer_agent.planner_link import PlannerLink
from trainer_agent.startup import FirstRegistration, agree_on_start

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection
    from pathlib import Path

    from dip.connecting import Endpoints

    from benchmarks.faults.messages import Message
    from trainer_agent import StepResult

FAILED = 3


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a rank is started with.

    Parameters
    ----------
    place
        Its number among all processes: replica * ranks + rank.
    directory
        Of this start of the job: where the ranks meet, write their logs, and keep checkpoints.
    environment
        Settings: no others begin with ``DIP_``.
    seed
        Other seeds are other data.
    first_iteration
        Number of the first batch.
    resumed_from
        The directory of the start that has a checkpoint of that iteration; None: begin afresh.
    budget_ms
        Search time of a plan.
    partitions
        Whether the planner partitions the model; otherwise the default partition is loaded.
    """

    place: int
    ranks: int
    replicas: int
    directory: Path
    environment: dict[str, str] = field(default_factory=dict)
    seed: int
    first_iteration: int
    resumed_from: Path | None
    budget_ms: int
    partitions: bool

    @property
    def log(self) -> Path:
        """What it writes for people."""
        return self.directory / f"rank{self.place}.log"


class WitnessedClient(PlannerClient):
    """Tells which batches planners have taken."""

    def __init__(self, endpoints: Endpoints, on_accepted: Callable[[Accepted], None]) -> None:
        super().__init__(endpoints)
        self._on_accepted = on_accepted

    def submit_batch(self, request: pb.SubmitBatchRequest, *, timeout_s: float = CALL_TIMEOUT_S) -> None:
        """Hand over a batch, and tell if it was taken."""
        super().submit_batch(request, timeout_s=timeout_s)
        self._on_accepted(
            Accepted(
                attempt=request.attempt,
                replica=request.replica,
                iteration=request.iteration,
                at_s=time.monotonic(),
            )
        )


class RankLoop:
    """The training loop of one rank."""

    def __init__(self, run: Run, connection: Connection) -> None:
        self._run = run
        self._connection = connection
        self._sending = threading.Lock()
        self._leave = Leave(stop_before=run.first_iteration, batch_ms=0)

    def train(self) -> None:
        """Train as far as told."""
        run = self._run
        mesh = Mesh.create(replicas=run.replicas)
        agent = self._connect(mesh)
        executor = Executor(agent, TinyChunk, hand_offs=hand_offs(), loss_weight=loss_weight)
        named = dict(executor.named_parameters())
        if run.resumed_from is not None:
            checkpoints.load(run.resumed_from, run.first_iteration, named)
        optimizer = torch.optim.SGD(executor.parameters(), lr=LEARNING_RATE)
        self._say(Began(job_id=agent.job_id, attempt=agent.attempt))
        loader = agent.wrap_loader(self._batches(mesh.replica), Batch.metadata, start_iteration=run.first_iteration)
        for iteration, batch in enumerate(loader, start=run.first_iteration):
            if not self._may_run(iteration):
                break
            if mesh.replica == 0:
                checkpoints.save(run.directory, iteration, mesh.rank, named)
            result = executor.step(batch)
            optimizer.step()
            optimizer.zero_grad()
            self._say(_executed(result, agent))
        stats = agent.stats
        agent.close()
        self._say(Ended(reconnects=stats.reconnects, late=stats.late))

    def _connect(self, mesh: Mesh) -> TrainerAgent:
        """Do as ``TrainerAgent.connect`` does, with a client that tells what it was answered."""
        run, settings = self._run, AgentSettings.from_environment()
        if settings.endpoints is None:
            raise TrainerAgentError("the fault run needs planners")
        client = WitnessedClient(settings.endpoints, self._say)
        spec = make_spec(ranks=run.ranks, replicas=run.replicas, budget_ms=run.budget_ms)
        request = pb.RegisterJobRequest(spec=spec, partition=None if run.partitions else default_partition(spec))
        first = FirstRegistration(request, settings, client, step_timeout_s=mesh.timeout.total_seconds())
        start = agree_on_start(request, first, mesh)
        link = PlannerLink(client, start, replica=mesh.replica, rank=mesh.rank)
        return TrainerAgent(start, mesh, link, settings)

    def _batches(self, replica: int) -> Iterator[Batch]:
        """Yield a batch every so often."""
        iteration, due_s = self._run.first_iteration, time.monotonic()
        while True:
            time.sleep(max(0.0, due_s - time.monotonic()))
            due_s = time.monotonic() + self._leave.batch_ms / 1000
            yield Batch.draw(seed=self._run.seed, replica=replica, iteration=iteration)
            iteration += 1

    def _may_run(self, iteration: int) -> bool:
        while iteration == self._leave.stop_before:
            leave: Leave | None = self._connection.recv()
            if leave is None:
                return False
            self._leave = leave
        return True

    def _say(self, message: Message) -> None:
        with self._sending:  # batches are taken on a thread of the agent's
            self._connection.send(message)


def _executed(result: StepResult, agent: TrainerAgent) -> Executed:
    report = result.report
    return Executed(
        attempt=report.attempt,
        replica=report.replica,
        rank=report.rank,
        iteration=result.iteration,
        digest=report.plan_digest,
        fallback=result.fallback,
        reason=agent.stats.last_fallback_reason if result.fallback else "",
        waited_us=result.waited_us,
        loss=result.loss,
        at_s=time.monotonic(),
    )


def main(run: Run, connection: Connection) -> None:
    """Run one rank; what the process is started with."""
    log = os.open(run.log, os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    for name in [name for name in os.environ if name.startswith("DIP_")]:
        del os.environ[name]
    os.environ.update(run.environment)
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    torch.set_num_threads(1)
    store = f"file://{run.directory / 'store'}"
    dist.init_process_group("gloo", init_method=store, rank=run.place, world_size=run.ranks * run.replicas)
    try:
        RankLoop(run, connection).train()
    except TrainerAgentError as error:
        connection.send(Failed(error=f"{type(error).__name__}: {error}"))
        os._exit(FAILED)  # its peers are gone: nothing to take leave of
    dist.destroy_process_group()
