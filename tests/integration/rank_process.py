"""One rank of a tiny training run, in a process of its own, told by the test how far to go.

`harness.Rank` starts it. Each message that it gets is the iteration to stop before, None the end. It sends a dictionary
for each iteration that it ran, for what it raised, and at the end for what its agent counted and what training came to.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from pipelines.models import TinyBatch, TinyChunk, TinyModel, TinyModule, Trace, loss_weight

from trainer_agent import Executor, Mesh, StageTask, TrainerAgent, TrainerAgentError, connections
from trainer_agent.transfers import GroupTransport

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

    from dip.planner.v1 import planner_pb2 as pb

    from trainer_agent import Chunk
    from trainer_agent.program import TransferStep
    from trainer_agent.transfers import Incoming, Outgoing

MODEL = TinyModel(
    modules=(
        TinyModule(name="vision", layers=3, width=3, merge=2),
        TinyModule(name="language", inputs=("vision",), layers=4, width=4),
    )
)


# Small enough that training stays tame however far a test goes.
LEARNING_RATE = 1e-3

FAILED = 3
HASTE_S = 3
# A planner that stands still for seconds, as one may on a busy machine, is not taken for one that is cut off.
PATIENT_CHANNELS = dict.fromkeys(("grpc.keepalive_timeout_ms", "grpc.http2.ping_timeout_ms"), 600_000)


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a rank is started with.

    Parameters
    ----------
    rank, ranks
        Its place.
    store, log
        Files: where the ranks meet, and where this one writes what it has to say to people.
    environment
        Settings: no others begin with ``DIP_``.
    first_iteration, seed
        Number of the first batch; other seeds are other data.
    fault, fault_iteration
        ``"kill"`` or ``"stop"``: what this rank does to itself in the middle of that iteration. ``"hurry"``: there its
        transfers wait for `HASTE_S` at most, while all that comes before may take as long as it does.
    """

    rank: int
    ranks: int
    store: str
    log: str
    environment: dict[str, str] = field(default_factory=dict)
    first_iteration: int = 0
    seed: int = 0
    fault: str = ""
    fault_iteration: int = -1


def make_spec(ranks: int) -> pb.JobSpec:
    """The job: small budgets, as its iterations are short."""
    spec = MODEL.spec(ranks)
    spec.options.budget_ms = 50
    return spec


def make_batch(seed: int, iteration: int) -> TinyBatch:
    """One iteration's batch: three microbatches, with more and fewer images, one of them with none."""
    images = [[4] * ((seed + iteration + j) % 3) for j in range(3)]
    return TinyBatch(
        seed=1000 * seed + iteration,
        microbatches=tuple(({"vision": of_one, "language": [3 + iteration % 4]},) for of_one in images),
    )


def batches(run: Run) -> Iterator[TinyBatch]:
    """All batches, without an end."""
    iteration = run.first_iteration
    while True:
        yield make_batch(run.seed, iteration)
        iteration += 1


class FaultyChunk(TinyChunk):
    """A chunk whose process comes to harm at the second microbatch of a certain batch."""

    def __init__(self, run: Run, model: TinyModel, chunk: Chunk) -> None:
        super().__init__(model, chunk)
        if run.fault in ("kill", "stop"):
            self._batch = make_batch(run.seed, run.fault_iteration)
            self._signal = signal.SIGKILL if run.fault == "kill" else signal.SIGSTOP
            self.layers[0].register_forward_pre_hook(self._come_to_harm)

    def _come_to_harm(self, layer: torch.nn.Module, inputs: tuple[torch.Tensor, StageTask]) -> None:
        task = inputs[1]
        if task.batch == self._batch and task.microbatch == 1:
            os.kill(os.getpid(), self._signal)


class HastyTransport(GroupTransport):
    """Transfers that wait for hardly anything in one of the executor's steps."""

    def __init__(self, run: Run, mesh: Mesh) -> None:
        super().__init__(mesh)
        self._hasty = GroupTransport(replace(mesh, timeout=timedelta(seconds=HASTE_S)))
        self._step = run.fault_iteration - run.first_iteration

    def send(self, tensor: torch.Tensor, step: TransferStep, number: int) -> Outgoing:
        return self._hasty.send(tensor, step, number) if number == self._step else super().send(tensor, step, number)

    def receive(self, step: TransferStep, number: int) -> Incoming:
        return self._hasty.receive(step, number) if number == self._step else super().receive(step, number)


class RankLoop:
    """The training loop of one rank."""

    def __init__(self, run: Run, connection: Connection) -> None:
        self._run = run
        self._connection = connection
        self._stop_before = run.first_iteration

    def train(self) -> None:
        """Train as far as told; tell what it came to."""
        run = self._run
        mesh = Mesh.create()
        agent = TrainerAgent.connect(make_spec(run.ranks), mesh)
        executor = Executor(
            agent,
            partial(FaultyChunk, run, MODEL),
            hand_offs=MODEL.hand_offs(),
            loss_weight=partial(loss_weight, MODEL),
            transport=HastyTransport(run, mesh) if run.fault == "hurry" else None,
        )
        self._say(job_id=agent.job_id, attempt=agent.attempt, partition=agent.partition.SerializeToString())
        trace, named = Trace(), dict(executor.named_parameters())
        optimizer = torch.optim.SGD(executor.parameters(), lr=LEARNING_RATE)
        loader = agent.wrap_loader(batches(run), TinyBatch.metadata, start_iteration=run.first_iteration)
        for iteration, batch in enumerate(loader, start=run.first_iteration):
            if not self._may_run(iteration):
                break
            result = executor.step(batch)
            trace.note(result.loss, named)
            optimizer.step()
            optimizer.zero_grad()
            reason = agent.stats.last_fallback_reason if result.fallback else ""
            self._say(
                iteration=iteration,
                fallback=result.fallback,
                reason=reason,
                waited_us=result.waited_us,
                at=time.monotonic(),
            )
        trace.finish(named)
        self._say(stats=asdict(agent.stats), trace=trace)
        agent.close()

    def _may_run(self, iteration: int) -> bool:
        while iteration == self._stop_before:
            told: int | None = self._connection.recv()
            if told is None:
                return False
            self._stop_before = told
        return True

    def _say(self, **what: Any) -> None:
        self._connection.send(what)


def main(run: Run, connection: Connection) -> None:
    """Run one rank; what the process is started with."""
    log = os.open(run.log, os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    for name in [name for name in os.environ if name.startswith("DIP_")]:
        del os.environ[name]
    os.environ.update(run.environment)
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    connections.CHANNEL_OPTIONS = tuple((dict(connections.CHANNEL_OPTIONS) | PATIENT_CHANNELS).items())
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{run.store}", rank=run.rank, world_size=run.ranks)
    try:
        RankLoop(run, connection).train()
    except TrainerAgentError as error:
        connection.send({"error": type(error).__name__, "message": str(error)})
        os._exit(FAILED)  # its peers are gone: nothing to take leave of
    dist.destroy_process_group()
