"""Shows that a rank that dies or freezes in mid-step is an error on the others within the timeout, never a hang."""

from __future__ import annotations

import os
import random
import signal
from typing import TYPE_CHECKING

import pytest
from dip.planner.v1 import planner_pb2 as pb
from pipelines.cases import random_batch
from pipelines.models import TinyModel, TinyModule
from pipelines.plans import random_plan
from pipelines.processes import Workers
from pipelines.scripted import Raised, fail_at
from pipelines.training import Case, Step

if TYPE_CHECKING:
    from collections.abc import Iterator

TIMEOUT_S = 4.0
# What a loaded machine may add.
MARGIN_S = 6.0
VICTIM = 1


@pytest.fixture
def doomed() -> Iterator[Workers]:
    """Processes that do not outlive their test."""
    made = Workers(3)
    yield made
    for process in made.processes:
        process.kill()
    made.close()


def three_ranks(steps: int) -> Case:
    """A chain over three ranks: the middle one has transfers with both others."""
    draw = random.Random(1)
    model = TinyModel(modules=(TinyModule(name="vision"), TinyModule(name="language", inputs=("vision",), layers=4)))
    spec = model.spec(3)
    partition = pb.Partition()
    for rank, (module, index, first) in enumerate((("vision", 0, 0), ("language", 0, 0), ("language", 1, 2))):
        partition.chunks.add(module=module, index=index, rank=rank, first_layer=first, num_layers=2)
    batches = [random_batch(draw, model, 4) for _ in range(steps)]
    plans = [random_plan(draw, spec, partition, batch.metadata()) for batch in batches]
    run = [[Step(batch=batch, plan=plan)] for batch, plan in zip(batches, plans, strict=True)]
    return Case(name="chain", model=model, spec=spec, partition=partition, steps=run)


def check_survivors(doomed: Workers) -> set[str]:
    """Check what the others raised; returns the kinds of their errors."""
    kinds = set()
    for rank in (0, 2):
        raised = doomed.answer(rank, limit_s=60)
        assert isinstance(raised, Raised), raised
        kinds.add(raised.kind)
        assert raised.message.startswith(f"rank {rank}, "), raised
        assert any(word in raised.message for word in ("receive of the", "send of the")), raised
        assert f"with rank {VICTIM}: " in raised.message, raised
        assert raised.after_s < TIMEOUT_S + MARGIN_S, raised
        assert raised.afterwards == "ExecutorFailedError", raised
    assert kinds <= {"PeerLostError", "StepTimeoutError"}
    return kinds


@pytest.mark.parametrize("transfer", [4, 11], ids=["first transfers", "later ones"])
def test_a_killed_rank(doomed: Workers, transfer: int) -> None:
    doomed.start(fail_at, 3, three_ranks(3), TIMEOUT_S, VICTIM, transfer, signal.SIGKILL)
    check_survivors(doomed)


def test_a_frozen_rank(doomed: Workers) -> None:
    """Its connections stay open: only the timeout tells the first of the others."""
    doomed.start(fail_at, 3, three_ranks(3), TIMEOUT_S, VICTIM, 6, signal.SIGSTOP)
    assert "StepTimeoutError" in check_survivors(doomed)
    pid = doomed.processes[VICTIM].pid
    assert pid is not None
    os.kill(pid, signal.SIGCONT)
