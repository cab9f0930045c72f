"""Shows what a chunk keeps, recomputes and gives back, and that it notices what would give wrong gradients silently."""

from __future__ import annotations

import gc
import random
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest
import torch
from dip.job import Job
from dip.planner.v1 import planner_pb2 as pb
from pipelines.cases import random_batch
from pipelines.models import TinyBatch, TinyChunk, TinyModel, TinyModule
from pipelines.plans import random_plan
from torch import nn

from trainer_agent.backward import StageRunner
from trainer_agent.compiling import Compiler
from trainer_agent.errors import HandOffError, StageInterfaceError
from trainer_agent.mailbox import Mailbox
from trainer_agent.plans import RankPlan
from trainer_agent.program import Cell, ComputeStep, Parcel
from trainer_agent.setup import chunks_of_rank

if TYPE_CHECKING:
    from trainer_agent.program import CellPlan
    from trainer_agent.stages import Chunk, Results, StageTask
    from trainer_agent.transfers import Transport

MODEL = TinyModel(modules=(TinyModule(name="language", layers=4, width=8, dropout=0.3),))
BATCH = random_batch(random.Random(1), MODEL, 1)
ROWS = sum(units for samples in BATCH.microbatches[0] for units in samples["language"])


def runner_and_cell(
    lean: float,
    model: TinyModel = MODEL,
    chunk_class: type[TinyChunk] = TinyChunk,
    *,
    split: bool = False,
    way: str = "recompute",
) -> tuple[StageRunner, CellPlan]:
    """The only chunk of a module, and its work on a microbatch that is one sub-microbatch."""
    spec, partition = model.spec(1, split_backward=split, strategies=(way,)), pb.Partition()
    partition.chunks.add(module="language", num_layers=4)
    metadata, job = BATCH.metadata(), Job.from_spec(spec)
    for seed in range(100):
        plan = random_plan(random.Random(seed), spec, partition, metadata, recompute=lean, split=1.0)
        if len(plan.sub_microbatches) == 1:
            break
    compiler = Compiler(
        job=job, partition=partition, rank=0, hand_offs=model.hand_offs(), strategies=("store", "recompute", way)
    )
    steps = compiler.compile(RankPlan.of(plan, metadata, rank=0, iteration=0)).steps
    (chunk,) = chunks_of_rank(job, partition, 0)
    runner = StageRunner(
        chunk=chunk,
        module=chunk_class(model, chunk),
        hand_offs=model.hand_offs()["language"],
        input_modules=(),
        frozen=model.modules[0].frozen,
        strategies={"in 16 bits": in_16_bits},
    )
    return runner, next(step.work for step in steps if isinstance(step, ComputeStep))


def in_16_bits() -> torch.autograd.graph.saved_tensors_hooks:
    """A way of the user's own: keep less of each number."""
    return torch.autograd.graph.saved_tensors_hooks(lambda x: x.to(torch.bfloat16), lambda x: x.to(torch.float64))


def kept_bytes(runner: StageRunner, work: CellPlan) -> int:
    """Bytes that a forward saves for its backward."""
    saved: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        runner.forward(work, [], BATCH, training=True)
    return sum(saved.values())


def test_recompute_gives_the_same_gradients_with_dropout() -> None:
    found = []
    for recompute in (0.0, 1.0):
        runner, work = runner_and_cell(recompute)
        assert set(work.ways) == {"recompute" if recompute else "store"}
        torch.manual_seed(5)
        loss = runner.forward(work, [], BATCH, training=True)
        runner.backward(work, [], loss_scale=0.5)
        found.append((loss, [parameter.grad for parameter in runner.module.parameters()]))
    (loss, stored), (again, recomputed) = found
    assert torch.equal(loss, again)
    for one, other in zip(stored, recomputed, strict=True):
        assert one is not None
        assert other is not None
        torch.testing.assert_close(one, other, rtol=1e-12, atol=0)


def gradients(lean: float, *, split: bool, way: str = "recompute") -> tuple[torch.Tensor, list[torch.Tensor | None]]:
    """Loss and gradients of two sub-microbatches whose backwards follow their forwards; weight halves come last."""
    runner, work = runner_and_cell(lean, split=split, way=way)
    other = replace(work, cell=work.cell._replace(sub_microbatch=work.cell.sub_microbatch + 1))
    assert work.is_split == split
    torch.manual_seed(5)
    losses = [runner.forward(one, [], BATCH, training=True) for one in (work, other)]
    for one in (other, work):
        if split:
            assert runner.backward_input(one, [], loss_scale=0.5) == []
        else:
            runner.backward(one, [], loss_scale=0.5)
    if split:
        for one in (work, other):
            runner.backward_weight(one)
    return sum(losses, torch.zeros(())), [parameter.grad for parameter in runner.module.parameters()]


@pytest.mark.parametrize(
    ("lean", "way"), [(0.0, "recompute"), (1.0, "recompute"), (0.5, "recompute"), (1.0, "offload")]
)
def test_halves_give_the_gradients_of_the_whole_with_dropout(lean: float, way: str) -> None:
    (loss, whole), (again, halves) = (gradients(lean, split=split, way=way) for split in (False, True))
    assert torch.equal(loss, again)
    for one, other in zip(whole, halves, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=0)


@pytest.mark.parametrize("split", [False, True])
def test_a_layer_is_recomputed_under_the_autocast_of_its_forward(split: bool) -> None:
    """That of the whole step."""
    model, found = replace(MODEL, dtype=torch.float32), []
    for lean in (0.0, 1.0):
        runner, work = runner_and_cell(lean, model, split=split)
        torch.manual_seed(5)
        with torch.autocast("cpu", torch.bfloat16):
            runner.forward(work, [], BATCH, training=True)
            if split:
                runner.backward_input(work, [], loss_scale=1.0)
                runner.backward_weight(work)
            else:
                runner.backward(work, [], loss_scale=1.0)
        found.append([parameter.grad for parameter in runner.module.parameters()])
    for one, other in zip(*found, strict=True):
        assert one is not None
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("split", [False, True])
def test_a_way_of_the_users_own_runs_in_its_context(split: bool) -> None:
    (_, wanted), (_, found) = gradients(0.0, split=split), gradients(1.0, split=split, way="in 16 bits")
    for one, other in zip(wanted, found, strict=True):
        torch.testing.assert_close(one, other, rtol=0.1, atol=0.1)
    assert not all(map(torch.equal, wanted, found))


class Watched(TinyChunk):
    """Notes what its layers return."""

    def __init__(self, model: TinyModel, chunk: Chunk) -> None:
        super().__init__(model, chunk)
        self.made: list[weakref.ref[torch.Tensor]] = []
        for layer in self.layers:
            layer.register_forward_hook(lambda module, given, made: self.made.append(weakref.ref(made)))


@pytest.mark.parametrize("lean", [0.0, 1.0])
def test_nothing_is_left_of_a_cell_after_its_weight_half(lean: float) -> None:
    """At once, not when Python collects its garbage."""
    gc.collect()
    gc.disable()
    try:
        runner, work = runner_and_cell(lean, chunk_class=Watched, split=True)
        tensors = {id(one) for one in gc.get_objects() if issubclass(type(one), torch.Tensor)}
        runner.forward(work, [], BATCH, training=True)
        runner.backward_input(work, [], loss_scale=1.0)
        runner.backward_weight(work)
        assert all(made() is None for made in cast("Watched", runner.module).made)
        left = [o for o in gc.get_objects() if issubclass(type(o), torch.Tensor) and id(o) not in tensors]
        own = {id(parameter.grad) for parameter in runner.module.parameters()}
        assert [one.shape for one in left if id(one) not in own] == []
    finally:
        gc.enable()


def test_recompute_keeps_less() -> None:
    stored, recomputed = (kept_bytes(*runner_and_cell(share)) for share in (0.0, 1.0))
    assert recomputed < stored / 3


def test_the_loss_scale_reaches_every_gradient_and_zero_is_no_nan() -> None:
    found = []
    for scale in (1.0, 0.25, 0.0):
        runner, work = runner_and_cell(0.0)
        torch.manual_seed(5)
        runner.forward(work, [], BATCH, training=True)
        runner.backward(work, [], loss_scale=scale)
        found.append([cast("torch.Tensor", parameter.grad) for parameter in runner.module.parameters()])
    for one, quarter, nothing in zip(*found, strict=True):
        torch.testing.assert_close(one * 0.25, quarter)
        assert torch.equal(nothing, torch.zeros_like(nothing))


def test_a_frozen_module_without_anything_trainable_before_it_keeps_nothing() -> None:
    frozen = replace(MODEL, modules=(replace(MODEL.modules[0], frozen=True),))
    runner, work = runner_and_cell(0.0, frozen)
    assert not work.has_backward
    assert not any(parameter.requires_grad for parameter in runner.module.parameters())
    assert kept_bytes(runner, work) == 0


class VectorLoss(TinyChunk):
    """Forgot to sum."""

    def loss(self, x: torch.Tensor, task: object) -> torch.Tensor:
        return x.sum(1)


def test_a_loss_that_is_no_scalar_is_refused() -> None:
    runner, work = runner_and_cell(0.0, MODEL, VectorLoss)
    with pytest.raises(StageInterfaceError, match=r"loss returned \(\d+,\) of torch.float64; must be"):
        runner.forward(work, [], BATCH, training=True)


class DetachedLoss(TinyChunk):
    """As a training loop logs it."""

    def loss(self, x: torch.Tensor, task: StageTask) -> torch.Tensor:
        return super().loss(x, task).detach()


class NothingCounts(TinyChunk):
    """As of a text without targets."""

    def loss(self, x: torch.Tensor, task: StageTask) -> torch.Tensor:
        return torch.zeros(())


def test_a_loss_that_hides_what_it_depends_on_is_refused() -> None:
    runner, work = runner_and_cell(0.0, MODEL, DetachedLoss)
    with pytest.raises(StageInterfaceError, match="without a gradient, so nothing would train"):
        runner.forward(work, [], BATCH, training=True)


def test_a_constant_loss_of_zero_trains_nothing() -> None:
    runner, work = runner_and_cell(0.0, MODEL, NothingCounts)
    assert runner.forward(work, [], BATCH, training=True) == 0
    assert runner.backward(work, [], loss_scale=1.0) == []
    assert all(parameter.grad is None for parameter in runner.module.parameters())


@pytest.mark.parametrize(
    ("result", "said"),
    [
        (lambda x: x[1:], "hand-off declares"),
        (lambda x: x.float(), "of torch.float32"),
        (lambda x: x.unsqueeze(0), "found"),
        (lambda x: None, "returned a NoneType"),
    ],
)
def test_a_result_that_is_not_what_was_declared_never_leaves_its_rank(result: object, said: str) -> None:
    class WrongResult(TinyChunk):
        def leave(self, x: torch.Tensor, task: object) -> torch.Tensor:
            return result(x)  # type: ignore[operator]

        def loss(self, x: torch.Tensor, task: object) -> torch.Tensor:
            raise AssertionError("not the last module")

    runner, work = runner_and_cell(0.0, MODEL, WrongResult)
    runner.chunk = replace(runner.chunk, is_loss=False)
    with pytest.raises((HandOffError, StageInterfaceError), match=said) as caught:
        runner.forward(work, [], BATCH, training=True)
    assert "language" in str(caught.value)


def test_a_parcel_that_was_written_to_is_noticed_when_it_is_taken() -> None:
    mailbox = Mailbox(cast("Transport", None), 0)
    parcel = Parcel(gradient=False, source=Cell("vision", 0, 1), target=Cell("language", 0, 2))
    tensor = torch.zeros(3)
    mailbox.put(parcel, tensor)
    assert mailbox.take(parcel) is tensor
    mailbox.put(parcel, tensor)
    tensor.detach().add_(1)
    with pytest.raises(StageInterfaceError, match=r"activation that vision\.0 on .* in place"):
        mailbox.take(parcel)


def test_batches_are_handed_to_the_module_as_the_user_made_them() -> None:
    seen = []

    class Looking(TinyChunk):
        def enter(self, task: object, results: object) -> torch.Tensor:
            seen.append(task)
            return super().enter(task, results)  # type: ignore[arg-type]

    runner, work = runner_and_cell(0.0, MODEL, Looking)
    runner.forward(work, [], BATCH, training=False)
    (task,) = seen
    assert task.batch is BATCH
    assert isinstance(task.batch, TinyBatch)
    assert not task.training
    assert task.samples == tuple(range(len(BATCH.microbatches[0])))


class _Shifted(nn.Module):
    """A layer whose bias meets all rows in one piece, without a sum."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.bias = nn.Parameter(torch.zeros(ROWS * 8, dtype=torch.float64))

    def forward(self, x: torch.Tensor, task: StageTask) -> torch.Tensor:
        made: torch.Tensor = self.layer(x, task) + self.bias.view(ROWS, 8)
        return made


class _ShiftedChunk(TinyChunk):
    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.layers = nn.ModuleList(_Shifted(layer) for layer in self.layers)


class _Pair(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, pair: list[torch.Tensor], task: StageTask) -> list[object]:
        x, (other, _) = pair
        return [self.layer(x, task), (other + self.layer(other, task), None)]


class _PairsChunk(TinyChunk):
    """Its layers hand on two tensors."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.layers = nn.ModuleList(_Pair(layer) for layer in self.layers)

    def enter(self, task: StageTask, results: Results) -> torch.Tensor:
        x = super().enter(task, results)
        return [x, (x * 2, None)]  # type: ignore[return-value]

    def loss(self, x: torch.Tensor, task: StageTask) -> torch.Tensor:
        return super().loss(x[0] + x[1][0], task)


@pytest.mark.parametrize("lean", [0.0, 1.0], ids=["stored", "recomputed"])
@pytest.mark.parametrize("chunk_class", [_ShiftedChunk, _PairsChunk])
def test_halves_of_layers_of_other_kinds_give_the_gradients_of_the_whole(
    chunk_class: type[TinyChunk], lean: float
) -> None:
    """Also where another cell's input half comes in between, and where layers hand on several tensors."""
    found = []
    for split in (False, True):
        runner, work = runner_and_cell(lean, MODEL, chunk_class, split=split)
        cells = [replace(work, cell=work.cell._replace(sub_microbatch=number)) for number in range(3)]
        torch.manual_seed(3)
        for number, cell in enumerate(cells):
            runner.forward(cell, [], BATCH, training=True)
            backward = runner.backward_input if split else runner.backward
            backward(cell, [], loss_scale=0.5 + number)
        for cell in cells if split else []:
            runner.backward_weight(cell)
        found.append([parameter.grad for parameter in runner.module.parameters()])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-14)
