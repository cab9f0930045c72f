"""Transports that fail or delay by script, and what ranks of the fault tests run with them."""

from __future__ import annotations

import os
import queue
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from pipelines.models import NOTES
from pipelines.processes import RANK_LIMIT_S
from pipelines.training import make_executor

from trainer_agent.errors import TrainerAgentError
from trainer_agent.mesh import Mesh
from trainer_agent.reduction import reduce_gradients
from trainer_agent.transfers import GroupTransport

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable

    from pipelines.training import Case

    from trainer_agent.executor import Executor
    from trainer_agent.program import TransferStep
    from trainer_agent.stages import Chunk, ChunkModule
    from trainer_agent.transfers import Incoming, Outgoing

HELD_TIMEOUT_S = 100.0


@dataclass
class ScriptedTransport:
    """Calls ``script(number)`` before each transfer, numbered from 0 over sends and receives."""

    inner: GroupTransport
    script: Callable[[int], None]
    number: int = 0

    def warm_up(self) -> None:
        self.inner.warm_up()

    def _next(self) -> None:
        self.script(self.number)
        self.number += 1

    def send(self, tensor: torch.Tensor, step: TransferStep, step_number: int) -> Outgoing:
        self._next()
        return self.inner.send(tensor, step, step_number)

    def receive(self, step: TransferStep, step_number: int) -> Incoming:
        self._next()
        return self.inner.receive(step, step_number)


@dataclass
class _Late:
    """A send that another thread issues later."""

    issued: threading.Event = field(default_factory=threading.Event)
    outgoing: list[Outgoing] = field(default_factory=list)

    def done(self) -> bool:
        return self.issued.is_set() and self.outgoing[0].done()

    def wait(self) -> None:
        self.issued.wait()
        self.outgoing[0].wait()


class HeldTransport:
    """Issues sends that ``is_held`` chooses once ``released`` allows it, and those behind them in order."""

    def __init__(
        self, inner: GroupTransport, is_held: Callable[[TransferStep], bool], released: Callable[[], object]
    ) -> None:
        self._inner, self._is_held, self._released = inner, is_held, released
        self._queue: queue.SimpleQueue[tuple[Callable[[], Outgoing], _Late, bool]] = queue.SimpleQueue()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            issue, late, held = self._queue.get()
            # Where it never comes, the other side's timeout has told by then.
            given_up_s = time.monotonic() + 2 * HELD_TIMEOUT_S
            while held and not self._released() and time.monotonic() < given_up_s:
                time.sleep(0.005)
            late.outgoing.append(issue())
            late.issued.set()

    def warm_up(self) -> None:
        self._inner.warm_up()

    def send(self, tensor: torch.Tensor, step: TransferStep, step_number: int) -> Outgoing:
        late = _Late()
        self._queue.put((lambda: self._inner.send(tensor, step, step_number), late, self._is_held(step)))
        return late

    def receive(self, step: TransferStep, step_number: int) -> Incoming:
        return self._inner.receive(step, step_number)


@dataclass(frozen=True)
class Raised:
    """What a step raised on one rank, and what the next step raised."""

    kind: str
    message: str
    afterwards: str


def _outcome(case: Case, mesh: Mesh, transport: ScriptedTransport) -> Raised | None:
    """Run a case until a step raises."""
    executor, _ = make_executor(case, mesh, transport)
    return _raised(executor, case, mesh)


def _raised(executor: Executor, case: Case, mesh: Mesh) -> Raised | None:
    """Step until that raises."""
    for of_replica in case.steps:
        batch = of_replica[mesh.replica].batch_of(mesh.rank)
        try:
            executor.step(batch)
        except (TrainerAgentError, ArithmeticError) as error:
            said = "; ".join([str(error), *getattr(error, "__notes__", ())])
            try:
                executor.step(batch)
            except TrainerAgentError as refusal:
                return Raised(type(error).__name__, said, type(refusal).__name__)
            return Raised(type(error).__name__, said, "")
    return None


def fail_at(case: Case, timeout_s: float, victim: int, transfer: int, how: signal.Signals) -> Raised | None:
    """Run a case in which one rank gets a signal at its n-th transfer: SIGKILL ends it, SIGSTOP freezes it."""
    mesh = Mesh.create(replicas=case.replicas, timeout_s=timeout_s)

    def script(number: int) -> None:
        if mesh.rank == victim and number == transfer:
            os.kill(os.getpid(), how)

    return _outcome(case, mesh, ScriptedTransport(GroupTransport(mesh), script))


def raise_in_a_gradient(case: Case, timeout_s: float, victim: int, parameter: str) -> Raised | None:
    """Run a case in which a hook of one rank's parameter raises in its second backward, and the process lives on."""
    mesh = Mesh.create(replicas=case.replicas, timeout_s=timeout_s)
    executor, _ = make_executor(case, mesh)
    calls = []

    def hook(gradient: torch.Tensor) -> None:
        calls.append(gradient.shape)
        if len(calls) == 2:
            raise ArithmeticError("no gradient")

    if mesh.rank == victim:
        dict(executor.named_parameters())[parameter].register_hook(hook)
    return _raised(executor, case, mesh)


def step_with_held_activations(case: Case, forwards: int, folder: str) -> list[bool]:
    """Run a case whose activations leave rank 0 once rank 1 has run so many forwards of its first layer.

    Returns
    -------
    list of bool
        For each forward of this rank's first layer, whether the activations had left by then.
    """
    mesh = Mesh.create(timeout_s=HELD_TIMEOUT_S)
    signal_file, ran = Path(folder) / "ran", []
    transport = HeldTransport(GroupTransport(mesh), lambda step: not step.parcel.gradient, signal_file.exists)
    executor, _ = make_executor(case, mesh, transport)
    (chunk,) = executor.chunks.values()
    forward = chunk.layers[0].forward

    def counted(*arguments: torch.Tensor) -> torch.Tensor:
        ran.append(signal_file.exists())
        made: torch.Tensor = forward(*arguments)
        if mesh.rank == 1 and len(ran) == forwards:
            signal_file.touch()
        return made

    chunk.layers[0].forward = counted
    ((step,),) = case.steps
    executor.step(step.batch)
    return ran


def computed(case: Case) -> list[str]:
    """Run a step; returns what the layers of this rank, which note it, computed, in order."""
    executor, _ = make_executor(case, Mesh.create(timeout_s=HELD_TIMEOUT_S))
    NOTES.clear()
    ((step,),) = case.steps
    executor.step(step.batch)
    return list(NOTES)


def refused(case: Case) -> Raised | None:
    """Run a case until a step raises."""
    mesh = Mesh.create(replicas=case.replicas, timeout_s=RANK_LIMIT_S)
    return _outcome(case, mesh, ScriptedTransport(GroupTransport(mesh), lambda number: None))


def construct(case: Case) -> str:
    """Build executors; returns what that raised."""
    try:
        make_executor(case, Mesh.create(timeout_s=RANK_LIMIT_S))
    except TrainerAgentError as error:
        return str(error)
    return ""


def construct_with_other_costs(case: Case) -> tuple[str, str]:
    """Build executors of which rank 1's has measured other costs; returns the error's kind and text."""
    mesh = Mesh.create(timeout_s=RANK_LIMIT_S)
    if mesh.rank == 1:
        case.spec.model.modules[0].layers[0].cost.points[0].forward_us += 1
    try:
        make_executor(case, mesh)
    except TrainerAgentError as error:
        return type(error).__name__, str(error)
    return "", ""


def construct_with_a_broken_rank(case: Case) -> tuple[str, str]:
    """Build executors of which rank 1's build_chunk raises; returns the error's kind and text."""
    mesh = Mesh.create(timeout_s=RANK_LIMIT_S)
    try:
        make_executor(case, mesh, build_chunk=_no_weights if mesh.rank == 1 else None)
    except (TrainerAgentError, OSError) as error:
        return type(error).__name__, str(error)
    return "", ""


def _no_weights(chunk: Chunk) -> ChunkModule:
    raise FileNotFoundError(f"no weights of {chunk.module}")


def step_in_inference_mode(case: Case) -> str:
    """Step where nothing can have gradients; returns what that raised."""
    executor, _ = make_executor(case, Mesh.create(timeout_s=RANK_LIMIT_S))
    with torch.inference_mode():
        try:
            executor.step(case.steps[0][0].batch)
        except TrainerAgentError as error:
            return str(error)
    return ""


def step_with_a_broken_module(case: Case) -> tuple[str, list[str]]:
    """Step with a loss chunk that raises; returns its words and notes."""
    executor, _ = make_executor(case, Mesh.create(timeout_s=RANK_LIMIT_S))

    def broken(*_: object) -> torch.Tensor:
        raise LookupError("no pixels")

    for name, chunk in executor.chunks.items():
        if name.startswith("language:"):
            chunk.layers[0].forward = broken
    try:
        executor.step(case.steps[0][0].batch)
    except LookupError as error:
        return str(error), error.__notes__
    return "", []


def parameter_names(case: Case) -> list[str]:
    """Names of this rank's parameters."""
    return [name for name, _ in make_executor(case, Mesh.create(timeout_s=RANK_LIMIT_S))[0].named_parameters()]


def place(replicas: int, ranks: int | None = None) -> tuple[int, int, list[int], list[int]] | str:
    """Return this process's rank, replica, and the global ranks of its pipeline and of its peers; or the error."""
    try:
        mesh = Mesh.create(replicas=replicas, ranks=ranks, timeout_s=RANK_LIMIT_S)
    except ValueError as error:
        return str(error)
    groups = mesh.pipeline_control, mesh.peers_control
    pipeline, peers = (dist.get_process_group_ranks(group) for group in groups)
    return mesh.rank, mesh.replica, pipeline, peers


def reduced(values: list[list[float | None]], bucket_bytes: int) -> list[list[float] | None]:
    """Add up one gradient of two equal numbers for each value of this replica; returns what each became."""
    mesh = Mesh.create(ranks=1, replicas=len(values), timeout_s=RANK_LIMIT_S)
    parameters = []
    for number, value in enumerate(values[mesh.replica]):
        dtype = torch.float64 if number % 2 else torch.float32
        parameter = torch.nn.Parameter(torch.zeros(2, dtype=dtype))
        if value is not None:
            parameter.grad = torch.full((2,), value, dtype=dtype)
        parameters.append(parameter)
    parameters.append(torch.nn.Parameter(torch.zeros(2), requires_grad=False))
    reduce_gradients(parameters, mesh, bucket_bytes=bucket_bytes)
    return [None if parameter.grad is None else parameter.grad.tolist() for parameter in parameters]
