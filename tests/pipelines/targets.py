"""What the profiler's tests measure: small modules, and one whose cost is known."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from clocks import Clock
from dip.planner.v1 import planner_pb2 as pb
from pipelines.models import Sizes, TinyBatch, TinyChunk, TinyModel, TinyModule
from pipelines.processes import RANK_LIMIT_S
from torch import nn

from trainer_agent.errors import ProfileError
from trainer_agent.mesh import Mesh
from trainer_agent.profiler import ProfileTarget, profile_layers
from trainer_agent.stages import Chunk, ChunkModule, HandOff, ModuleHandOffs, Results, StageTask

if TYPE_CHECKING:
    from collections.abc import Sequence

MODEL = TinyModel(
    modules=(
        TinyModule(name="vision", layers=3, width=8, merge=2),
        TinyModule(name="audio", layers=3, width=8, frozen=True),
        TinyModule(name="language", inputs=("vision", "audio"), layers=4, width=16),
    )
)

INSIDE_AUDIO = Chunk(
    module="audio", index=0, rank=0, first_layer=1, num_layers=1, is_first=False, is_last=False, is_loss=False
)


def make_batch(module: str, sizes: Sequence[int]) -> TinyBatch:
    samples: list[Sizes] = [{module: [units]} for units in sizes]
    return TinyBatch(seed=1, microbatches=(tuple(samples),))


def tiny() -> ProfileTarget:
    spec = MODEL.spec(2)
    for module in spec.model.modules:
        module.ClearField("output_bytes_per_unit")
        module.ClearField("result_bytes_per_unit")
        for run in module.layers:
            run.ClearField("cost")
            run.ClearField("static_bytes")
    return ProfileTarget(
        spec=spec,
        build_chunk=partial(TinyChunk, MODEL),
        hand_offs=MODEL.hand_offs(),
        make_batch=make_batch,
        units=(16, 64),
    )


FEATURES = 16
PLAYED = Clock()
"""What the layers below take their time by."""


class _Timed(nn.Module):
    """Takes 1 us a unit and 4 us for each thousand squared units, by a clock that nothing else moves."""

    def forward(self, x: torch.Tensor, task: StageTask) -> torch.Tensor:
        PLAYED.now_s += sum(rows + 0.004 * rows**2 for rows in task.output_rows) / 1e6
        return x * 1


class TimedChunk(ChunkModule):
    def __init__(self, chunk: Chunk) -> None:
        super().__init__()
        self.layers = nn.ModuleList(_Timed() for _ in range(chunk.num_layers))

    def enter(self, task: StageTask, results: Results) -> torch.Tensor:
        return torch.zeros(sum(task.output_rows), FEATURES)

    def loss(self, x: torch.Tensor, task: StageTask) -> torch.Tensor:
        return x.sum()


def timed() -> ProfileTarget:
    spec = pb.JobSpec(cluster=pb.Cluster(ranks=1))
    spec.model.modules.add(name="text", layers=[pb.LayerRun(count=3)])
    return ProfileTarget(
        spec=spec,
        build_chunk=TimedChunk,
        hand_offs={"text": ModuleHandOffs(output=HandOff(features=(FEATURES,)))},
        units=(64, 256, 1024),
    )


class _Pair(nn.Module):
    def forward(self, x: torch.Tensor, task: StageTask) -> tuple[torch.Tensor, torch.Tensor]:
        return x, x


class PairChunk(TimedChunk):
    def __init__(self, chunk: Chunk) -> None:
        super().__init__(chunk)
        self.layers = nn.ModuleList(_Pair() for _ in range(chunk.num_layers))


NOT_CALLABLE = 3


def returns_a_number() -> int:
    return 3


def _broken(chunk: Chunk) -> ChunkModule:
    raise KeyError("no weights")


def profile_what_cannot_be_built() -> str:
    """Profile on the ranks of a test; returns what this rank raised."""
    try:
        profile_layers(replace(tiny(), build_chunk=_broken), mesh=Mesh.create(timeout_s=RANK_LIMIT_S), repeats=1)
    except ProfileError as error:
        return str(error)
    return ""


def profile_here() -> bytes:
    """Profile on the ranks of a test, and return what this rank got."""
    return profile_layers(tiny(), mesh=Mesh.create(timeout_s=RANK_LIMIT_S), repeats=1).SerializeToString(
        deterministic=True
    )
