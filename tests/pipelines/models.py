"""Small random multimodal models in float64, the same on any partition, and their ordinary training in one process.

Everything is chosen so that a mistake shows in a gradient: layers mix the rows of an instance, consumers weigh the
results of a sample by their order, ``leave`` merges rows, parameters stand outside of layers, and losses count only
some rows.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from dip.planner.v1 import planner_pb2 as pb
from torch import nn

from trainer_agent.stages import (
    Chunk,
    ChunkModule,
    GatheredResults,
    HandOff,
    Instance,
    ModuleHandOffs,
    Results,
    StageTask,
)

if TYPE_CHECKING:
    import numpy as np

RAW_FEATURES, CLASSES = 3, 4
# Linear in the gradients: Adam would blow rounding errors of a gradient that is zero up to whole steps. Momentum and
# decay tell a gradient of zeros from none.
OPTIMIZER = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.01}
NOTES: list[str] = []
"""What layers that note it computed in this process, in order."""
Sizes = Mapping[str, Sequence[int]]
"""Units of a sample's instances, by module."""


@dataclass(frozen=True, kw_only=True)
class TinyModule:
    """One module: its layers, widths, how it treats what it consumes, and what a layer takes at least, each way."""

    name: str
    inputs: tuple[str, ...] = ()
    layers: int = 2
    width: int = 4
    result_width: int = 3
    merge: int = 1
    frozen: bool = False
    ignores_odd_samples: bool = False
    dropout: float = 0.0
    notes: bool = False


@dataclass(frozen=True, kw_only=True)
class TinyModel:
    """A model; the last module computes the loss. Parameters named in one of ``tied`` are one."""

    modules: tuple[TinyModule, ...]
    dtype: torch.dtype = torch.float64
    tied: tuple[tuple[str, ...], ...] = ()

    def of(self, name: str) -> TinyModule:
        return next(module for module in self.modules if module.name == name)

    def trains(self, name: str) -> bool:
        module = self.of(name)
        return not module.frozen or any(map(self.trains, module.inputs))

    def hand_offs(self) -> dict[str, ModuleHandOffs]:
        return {
            module.name: ModuleHandOffs(
                output=HandOff(features=(module.width,), dtype=self.dtype),
                result=HandOff(
                    features=(module.result_width,),
                    dtype=self.dtype,
                    rows=lambda units, by=module.merge: -(-units // by),
                ),
            )
            for module in self.modules
        }

    def spec(
        self,
        ranks: int,
        *,
        replicas: int = 1,
        seed: int = 0,
        split_backward: bool = False,
        strategies: Sequence[str] = ("recompute",),
    ) -> pb.JobSpec:
        """Job with made-up costs, other ones for other seeds, so that schedules differ."""
        draw = random.Random(seed)
        spec = pb.JobSpec(cluster=pb.Cluster(ranks=ranks, replicas=replicas, link_latency_us=10, link_bytes_per_us=100))
        spec.options.split_backward = split_backward
        for module in self.modules:
            made = spec.model.modules.add(name=module.name, inputs=module.inputs, frozen=module.frozen)
            made.output_bytes_per_unit = 8 * module.width
            made.result_bytes_per_unit = 8 * module.result_width
            forward = draw.uniform(1, 20)
            store = pb.CostPoint(
                units=16,
                forward_us=16 * forward,
                backward_input_us=16 * forward,
                backward_weight_us=12 * forward,
                activation_bytes=1600,
            )
            lean = pb.CostPoint()
            lean.CopyFrom(store)
            lean.backward_input_us, lean.activation_bytes, lean.split_activation_bytes = 32 * forward, 160, 1600
            ways = [pb.MemoryStrategy(name=name, points=[lean]) for name in strategies]
            cost = pb.LayerCost(points=[store], strategies=ways)
            made.layers.add(count=module.layers, cost=cost, static_bytes=100)
        return spec


@dataclass(frozen=True, kw_only=True)
class TinyBatch:
    """A user's batch: for each microbatch its samples' instance sizes; the data follows from a seed."""

    seed: int
    microbatches: tuple[tuple[Sizes, ...], ...]
    forward_only: bool = False
    valid: bool = True

    def metadata(self) -> pb.Batch:
        batch = pb.Batch(forward_only=self.forward_only)
        for samples in self.microbatches:
            microbatch = batch.microbatches.add()
            for sizes in samples:
                sample = microbatch.samples.add()
                for module, units in sizes.items():
                    if units:
                        sample.instances[module].units.extend(units)
        return batch

    def raw(self, module: str, microbatch: int, instance: Instance, dtype: torch.dtype) -> torch.Tensor:
        """Data of one instance, ``[units, RAW_FEATURES]``."""
        key = f"{self.seed}/{module}/{microbatch}/{instance.sample}/{instance.index}"
        generator = torch.Generator().manual_seed(zlib.crc32(key.encode()))
        return torch.randn(instance.units, RAW_FEATURES, generator=generator, dtype=dtype)

    def counted(self, units: int, sample: int) -> int:
        """Rows of an instance that the loss counts; none of every third sample."""
        return 0 if sample % 3 == 2 or not self.valid else (units + 1) // 2


def loss_weight(model: TinyModel, batch: object) -> float:
    """Rows that the loss counts."""
    assert isinstance(batch, TinyBatch)
    last = model.modules[-1].name
    return float(
        sum(
            batch.counted(units, s)
            for samples in batch.microbatches
            for s, sizes in enumerate(samples)
            for units in sizes.get(last, ())
        )
    )


def _merged(units: int, *, by: int) -> int:
    return -(-units // by)


class _Noted(torch.autograd.Function):
    """Notes its backward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, name: str) -> torch.Tensor:
        ctx.name = name
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        NOTES.append(ctx.name)
        return gradient, None


def _noted(x: torch.Tensor, name: str) -> torch.Tensor:
    made: torch.Tensor = _Noted.apply(x, name)  # type: ignore[no-untyped-call]
    return made


class _Layer(nn.Module):
    def __init__(self, spec: TinyModule) -> None:
        super().__init__()
        self.up = nn.Linear(spec.width, 2 * spec.width)
        self.down = nn.Linear(2 * spec.width, spec.width)
        self.mix = nn.Linear(spec.width, spec.width, bias=False)
        self.dropout = nn.Dropout(spec.dropout)
        self.notes = spec.notes

    def forward(self, x: torch.Tensor, task: StageTask) -> torch.Tensor:
        up = self.up.weight
        if self.notes:
            NOTES.append("forward")
            x, up = _noted(x, "input"), _noted(up, "weight")
        means = [rows.mean(0, keepdim=True).expand_as(rows) for rows in torch.split(x, list(task.output_rows))]
        return (
            x
            + self.dropout(self.down(torch.tanh(nn.functional.linear(x, up, self.up.bias))))
            + self.mix(torch.cat(means))
        )


class TinyChunk(ChunkModule):
    """A chunk of one of the modules; its parameters depend on their names alone."""

    def __init__(self, model: TinyModel, chunk: Chunk) -> None:
        super().__init__()
        self.spec, self.model, self.chunk = model.of(chunk.module), model, chunk
        self.layers = nn.ModuleList(_Layer(self.spec) for _ in range(chunk.num_layers))
        width = self.spec.width
        if chunk.is_first:
            self.embed = nn.Linear(RAW_FEATURES, width)
            self.project = nn.ModuleDict(
                {name: nn.Linear(model.of(name).result_width, width, bias=False) for name in self.spec.inputs}
            )
        if chunk.is_last:
            self.head = nn.Linear(width, CLASSES if chunk.is_loss else self.spec.result_width)
        self.to(model.dtype)
        for name, parameter in self.named_parameters():
            if name.startswith("layers."):
                index, rest = name.removeprefix("layers.").split(".", 1)
                name = f"layers.{int(index) + chunk.first_layer}.{rest}"
            generator = torch.Generator().manual_seed(zlib.crc32(f"{chunk.module}.{name}".encode()))
            with torch.no_grad():
                parameter.copy_(0.4 * torch.randn(parameter.shape, generator=generator, dtype=model.dtype))

    def enter(self, task: StageTask, results: Results) -> torch.Tensor:
        batch, rows = task.batch, []
        assert isinstance(batch, TinyBatch)
        assert set(results) == set(self.spec.inputs)
        for instance in task.instances:
            x = self.embed(batch.raw(self.spec.name, task.microbatch, instance, self.model.dtype))
            if not (self.spec.ignores_odd_samples and instance.sample % 2):
                for name, gathered in results.items():
                    for place, result in enumerate(gathered.of_sample(instance.sample), start=1):
                        x = x + self.project[name](torch.tanh(result)).mean(0) / (place + instance.index)
            rows.append(x)
        return torch.cat(rows)

    def leave(self, x: torch.Tensor, task: StageTask) -> torch.Tensor:
        merged = []
        for rows in torch.split(x, list(task.output_rows)):
            merged += [piece.mean(0) for piece in torch.split(rows, self.spec.merge)]
        return self.head(torch.stack(merged))

    def loss(self, x: torch.Tensor, task: StageTask) -> torch.Tensor:
        batch, total = task.batch, x.sum() * 0
        assert isinstance(batch, TinyBatch)
        for instance, logits in zip(task.instances, torch.split(self.head(x), list(task.output_rows)), strict=True):
            raw = batch.raw(self.spec.name, task.microbatch, instance, self.model.dtype)
            targets = (raw[:, 0] > 0).long() + 2 * (raw[:, 1] > 0).long()
            counted = batch.counted(instance.units, instance.sample)
            total = total + nn.functional.cross_entropy(logits[:counted], targets[:counted], reduction="sum")
        return total


@dataclass(kw_only=True)
class Trace:
    """What training came to: each step's loss and gradients by name, and the parameters at the end."""

    losses: list[float] = field(default_factory=list)
    gradients: list[dict[str, np.ndarray | None]] = field(default_factory=list)
    parameters: dict[str, np.ndarray] = field(default_factory=dict)

    def note(self, loss: float, named: Mapping[str, nn.Parameter]) -> None:
        """Keep the loss and the gradients of one step."""
        self.losses.append(loss)
        self.gradients.append({n: None if p.grad is None else p.grad.numpy().copy() for n, p in named.items()})

    def finish(self, named: Mapping[str, nn.Parameter]) -> None:
        """Keep the parameters."""
        self.parameters = {name: parameter.detach().numpy().copy() for name, parameter in named.items()}


def make_optimizer(named: Mapping[str, nn.Parameter]) -> torch.optim.Optimizer:
    """Optimizer of all parameters; frozen ones never have gradients, and a rank may have none at all."""
    return torch.optim.SGD([{"params": list(dict.fromkeys(named.values()))}], **OPTIMIZER)


class Reference:
    """Ordinary training of a model in one process: each microbatch whole, one module after another."""

    def __init__(self, model: TinyModel) -> None:
        self.model = model
        self.modules: dict[str, TinyChunk] = {}
        for module in model.modules:
            chunk = Chunk(
                module=module.name,
                index=0,
                rank=0,
                first_layer=0,
                num_layers=module.layers,
                is_first=True,
                is_last=True,
                is_loss=module is model.modules[-1],
            )
            self.modules[module.name] = TinyChunk(model, chunk).requires_grad_(not module.frozen)
        for first, *others in model.tied:
            for name in others:
                owner, _, attribute = name.rpartition(".")
                module, _, path = owner.partition(".")
                setattr(self.modules[module].get_submodule(path), attribute, self.named_parameters()[first])

    def named_parameters(self) -> dict[str, nn.Parameter]:
        return {
            f"{m}.{name}": p
            for m, module in self.modules.items()
            for name, p in module.named_parameters(remove_duplicate=False)
        }

    def _loss_sum(self, batch: TinyBatch, microbatch: int) -> torch.Tensor:
        results: dict[str, dict[tuple[int, int], torch.Tensor]] = {}
        loss = torch.zeros((), dtype=self.model.dtype)
        hand_offs = self.model.hand_offs()
        for name, module in self.modules.items():
            instances = tuple(
                Instance(s, i, units)
                for s, sizes in enumerate(batch.microbatches[microbatch])
                for i, units in enumerate(sizes.get(name, ()))
            )
            results[name] = {}
            if not instances:
                continue
            task = StageTask(
                chunk=module.chunk,
                batch=batch,
                microbatch=microbatch,
                sub_microbatch=0,
                instances=instances,
                output_rows=hand_offs[name].output.rows_of(instances),
                result_rows=hand_offs[name].handed_on.rows_of(instances),
                training=True,
            )
            gathered = {up: GatheredResults(results[up]) for up in module.spec.inputs}
            x = module.enter(task, gathered)
            # Results that enter ignores get gradients of zeros on a pipeline, where ordinary training leaves none.
            for rows in (rows for of_module in gathered.values() for rows in of_module.values()):
                x = x + 0 * rows.sum()
            for layer in module.layers:
                x = layer(x, task)
            if module.chunk.is_loss:
                loss = module.loss(x, task)
                continue
            pieces = torch.split(module.leave(x, task), list(task.result_rows))
            results[name] = {(i.sample, i.index): rows for i, rows in zip(instances, pieces, strict=True)}
        return loss

    def step(self, batches: Sequence[TinyBatch]) -> float:
        """Forward and backward of one iteration over the batches of all replicas."""
        weight = sum(loss_weight(self.model, batch) for batch in batches)
        total = 0.0
        for batch in batches:
            for microbatch in range(len(batch.microbatches)):
                loss = self._loss_sum(batch, microbatch) / (weight or 1.0)
                total += float(loss.detach())
                if loss.requires_grad and not batch.forward_only:
                    loss.backward()
        return total

    def train(self, steps: Sequence[Sequence[TinyBatch]], *, accumulate: int = 1) -> Trace:
        """Run some iterations, an optimizer step after every ``accumulate`` of them."""
        trace, named = Trace(), self.named_parameters()
        optimizer = make_optimizer(named)
        for number, batches in enumerate(steps, start=1):
            trace.note(self.step(batches), named)
            if number % accumulate:
                continue
            if not batches[0].forward_only:
                optimizer.step()
            optimizer.zero_grad()
        trace.finish(named)
        return trace
