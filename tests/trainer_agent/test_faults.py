"""Shows that a rank that dies or freezes in mid-step is an error on the others within the timeout, never a hang."""

from __future__ import annotations

import random
import signal
from typing import TYPE_CHECKING

import pytest
from dip.planner.v1 import planner_pb2 as pb
from pipelines.cases import random_batch
from pipelines.models import TinyModel, TinyModule
from pipelines.plans import random_plan
from pipelines.processes import Workers
from pipelines.scripted import Raised, fail_at, raise_in_a_gradient
from pipelines.training import Case, Step

if TYPE_CHECKING:
    from collections.abc import Iterator

# Longer than any machine is likely to stand still: a rank that was held up by it is not one that fell silent.
TIMEOUT_S = 30.0
LIMIT_S = 200.0
VICTIM = 1


@pytest.fixture
def doomed() -> Iterator[Workers]:
    """Processes that do not outlive their test."""
    made = Workers(3)
    yield made
    for process in made.processes:
        process.kill()
    made.close()


def three_ranks(steps: int, *, split: float = 0.0, tied: tuple[tuple[str, ...], ...] = ()) -> Case:
    """A chain over three ranks: the middle one has transfers with both others."""
    draw = random.Random(1)
    model = TinyModel(
        modules=(TinyModule(name="vision"), TinyModule(name="language", inputs=("vision",), layers=4)), tied=tied
    )
    spec = model.spec(3, split_backward=split > 0)
    partition = pb.Partition()
    for rank, (module, index, first) in enumerate((("vision", 0, 0), ("language", 0, 0), ("language", 1, 2))):
        partition.chunks.add(module=module, index=index, rank=rank, first_layer=first, num_layers=2)
    batches = [random_batch(draw, model, 4) for _ in range(steps)]
    plans = [random_plan(draw, spec, partition, batch.metadata(), split=split) for batch in batches]
    run = [[Step(batch=batch, plan=plan)] for batch, plan in zip(batches, plans, strict=True)]
    return Case(name="chain", model=model, spec=spec, partition=partition, steps=run)


def check_survivors(doomed: Workers) -> set[str]:
    """Check what the others raised; returns the kinds of their errors."""
    kinds = set()
    for rank in (0, 2):
        raised = doomed.answer(rank, limit_s=LIMIT_S)
        assert isinstance(raised, Raised), raised
        kinds.add(raised.kind)
        assert raised.message.startswith(f"rank {rank}, "), raised
        assert any(word in raised.message for word in ("receive of the", "send of the")), raised
        assert f"with rank {VICTIM}: " in raised.message, raised
        assert raised.afterwards == "ExecutorFailedError", raised
    assert kinds <= {"PeerLostError", "StepTimeoutError"}
    return kinds


@pytest.mark.parametrize("transfer", [4, 11], ids=["first transfers", "later ones"])
def test_a_killed_rank(doomed: Workers, transfer: int) -> None:
    doomed.start(fail_at, 3, three_ranks(3), TIMEOUT_S, VICTIM, transfer, signal.SIGKILL)
    check_survivors(doomed)


PHASES = {0.0: "backward", 1.0: "weight half"}
TIES: dict[str, tuple[tuple[str, ...], ...]] = {
    "apart": (),
    "tied": (("vision.embed.weight", "language.embed.weight"),),
}


@pytest.fixture(scope="module")
def lasting() -> Iterator[dict[object, Workers]]:
    """Runs that end by their timeout, side by side: together they take as long as one."""
    made: dict[object, Workers] = {"frozen": Workers(3)}
    made["frozen"].start(fail_at, 3, three_ranks(3), TIMEOUT_S, VICTIM, 6, signal.SIGSTOP)
    for split in PHASES:
        for name, tied in TIES.items():
            made[split, name] = Workers(3)
            case = three_ranks(3, split=split, tied=tied)
            made[split, name].start(raise_in_a_gradient, 3, case, TIMEOUT_S, VICTIM, "language.layers.0.mix.weight")
    yield made
    for workers in made.values():
        for process in workers.processes:
            process.kill()
        workers.close()


def test_a_frozen_rank(lasting: dict[object, Workers]) -> None:
    """Its connections stay open: only the timeout tells the first of the others."""
    assert "StepTimeoutError" in check_survivors(lasting["frozen"])


@pytest.mark.parametrize(("split", "phase"), PHASES.items())
@pytest.mark.parametrize("tie", TIES)
def test_a_rank_that_raises_in_a_gradient_and_lives_on(
    lasting: dict[object, Workers], split: float, phase: str, tie: str
) -> None:
    """Its own error has a note; the others raise within the timeout, even where all that is left is a sum."""
    for rank in range(3):
        raised = lasting[split, tie].answer(rank, limit_s=LIMIT_S)
        assert isinstance(raised, Raised), raised
        assert raised.afterwards == "ExecutorFailedError", raised
        if rank == VICTIM:
            assert raised.kind == "ArithmeticError"
            assert f"raised on rank {VICTIM}, in the {phase} of language.0 on" in raised.message
        else:
            assert raised.kind in ("PeerLostError", "StepTimeoutError")
