"""The tiny model of the fault run, vision into language, and its batches, which follow from numbers alone."""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

import torch
from dip.planner.v1 import planner_pb2 as pb
from torch import nn

from trainer_agent import ChunkModule, HandOff, ModuleHandOffs

if TYPE_CHECKING:
    from trainer_agent import Chunk, Instance, Results, StageTask

DTYPE: Final = torch.float64
LAYERS: Final = {"vision": 4, "language": 4}
INPUTS: Final = {"vision": (), "language": ("vision",)}
LEARNING_RATE: Final = 0.02
"""High enough that a wrong gradient shows in the losses that follow."""

_WIDTH, _RAW_FEATURES, _MICROBATCHES = 6, 3, 3


def make_spec(*, ranks: int, replicas: int, budget_ms: int) -> pb.JobSpec:
    """Describe the job, with made-up costs."""
    spec = pb.JobSpec(cluster=pb.Cluster(ranks=ranks, replicas=replicas, link_latency_us=10, link_bytes_per_us=100))
    spec.options.budget_ms = budget_ms
    for name, layers in LAYERS.items():
        module = spec.model.modules.add(name=name, inputs=INPUTS[name], output_bytes_per_unit=8 * _WIDTH)
        point = pb.CostPoint(
            units=16, forward_us=120, backward_input_us=120, backward_weight_us=100, activation_bytes=1600
        )
        module.layers.add(count=layers, cost=pb.LayerCost(points=[point]), static_bytes=100)
    return spec


def hand_offs() -> dict[str, ModuleHandOffs]:
    """Describe what crosses between ranks."""
    return {name: ModuleHandOffs(output=HandOff(features=(_WIDTH,), dtype=DTYPE)) for name in LAYERS}


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """One replica's batch of one iteration; other seeds are other data.

    Parameters
    ----------
    samples
        For each microbatch and sample, the sizes of its instances by module.
    """

    seed: int
    replica: int
    iteration: int
    samples: tuple[tuple[dict[str, tuple[int, ...]], ...], ...]

    @classmethod
    def draw(cls, *, seed: int, replica: int, iteration: int) -> Batch:
        """Draw the sizes: texts with no image, one or more."""
        source = random.Random(f"{seed}/{replica}/{iteration}")

        def sample() -> dict[str, tuple[int, ...]]:
            images = tuple(source.randint(2, 8) for _ in range(source.randint(0, 2)))
            return {"vision": images, "language": (source.randint(3, 12),)}

        samples = tuple(tuple(sample() for _ in range(source.randint(1, 2))) for _ in range(_MICROBATCHES))
        return cls(seed=seed, replica=replica, iteration=iteration, samples=samples)

    def metadata(self) -> pb.Batch:
        """Describe it for the planner."""
        batch = pb.Batch()
        for samples in self.samples:
            microbatch = batch.microbatches.add()
            for sizes in samples:
                made = microbatch.samples.add()
                for module, units in sizes.items():
                    if units:
                        made.instances[module].units.extend(units)
        return batch

    def raw(self, module: str, microbatch: int, instance: Instance) -> torch.Tensor:
        """Return the data of one instance, ``[units, features]``."""
        where = f"{self.seed}/{self.replica}/{self.iteration}/{module}/{microbatch}"
        return _drawn(f"{where}/{instance.sample}/{instance.index}", (instance.units, _RAW_FEATURES))

    def weight(self) -> float:
        """Return what the summed loss is divided by: the units of all texts."""
        return float(sum(sum(sizes["language"]) for samples in self.samples for sizes in samples))


def loss_weight(batch: object) -> float:
    """Return a batch's weight, as the executor asks for it."""
    if not isinstance(batch, Batch):
        raise TypeError(f"a batch of the fault run was expected, not {batch!r}")
    return batch.weight()


class _Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(_WIDTH, 2 * _WIDTH), nn.Linear(2 * _WIDTH, _WIDTH)

    def forward(self, x: torch.Tensor, task: StageTask) -> torch.Tensor:
        mixed = torch.cat([rows + rows.mean(0, keepdim=True) for rows in torch.split(x, list(task.output_rows))])
        made: torch.Tensor = x + 0.1 * self.down(torch.tanh(self.up(mixed)))
        return made


class TinyChunk(ChunkModule):
    """A chunk of one of the modules; its parameters follow from their names alone."""

    def __init__(self, chunk: Chunk) -> None:
        super().__init__()
        self.chunk = chunk
        self.layers = nn.ModuleList(_Layer() for _ in range(chunk.num_layers))
        if chunk.is_first:
            self.embed = nn.Linear(_RAW_FEATURES, _WIDTH)
        if chunk.is_last:
            self.head = nn.Linear(_WIDTH, 1 if chunk.is_loss else _WIDTH)
        self.to(DTYPE)
        for name, parameter in self.named_parameters():
            owner, _, rest = name.partition(".")
            if owner == "layers":
                index, _, rest = rest.partition(".")
                name = f"layers.{chunk.first_layer + int(index)}.{rest}"
            with torch.no_grad():
                parameter.copy_(0.4 * _drawn(f"{chunk.module}.{name}", tuple(parameter.shape)))

    def enter(self, task: StageTask, results: Results) -> torch.Tensor:
        """Embed the instances, each with what its sample's images came to."""
        batch, rows = _batch_of(task), []
        for instance in task.instances:
            x = self.embed(batch.raw(self.chunk.module, task.microbatch, instance))
            for gathered in results.values():
                for result in gathered.of_sample(instance.sample):
                    x = x + result.mean(0)
            rows.append(x)
        return torch.cat(rows)

    def leave(self, x: torch.Tensor, task: StageTask) -> torch.Tensor:
        """Project the result."""
        result: torch.Tensor = self.head(x)
        return result

    def loss(self, x: torch.Tensor, task: StageTask) -> torch.Tensor:
        """Sum the squared distances to targets that follow from the data."""
        batch = _batch_of(task)
        raw = torch.cat([batch.raw(self.chunk.module, task.microbatch, instance) for instance in task.instances])
        distances: torch.Tensor = self.head(x)[:, 0] - raw.sum(1)
        return distances.square().sum()


def _batch_of(task: StageTask) -> Batch:
    if not isinstance(task.batch, Batch):
        raise TypeError(f"a batch of the fault run was expected, not {task.batch!r}")
    return task.batch


@cache
def _drawn(key: str, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(zlib.crc32(key.encode())), dtype=DTYPE)
