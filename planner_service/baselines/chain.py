"""All layers of all modules in one chain, cut into stages: what every planner that knows no modules does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from dip.partition import batch_load, layer_times_us, typical_load
from dip.planner.v1 import planner_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dip.job import Job


@dataclass(frozen=True, kw_only=True, slots=True)
class Stages:
    """A partition whose chunks belong to stages.

    Parameters
    ----------
    partition
        Where every layer lives.
    stage_of
        For each module, the stage of each of its chunks.
    """

    partition: pb.Partition
    stage_of: tuple[tuple[int, ...], ...]


def chain_times_us(job: Job, batch: pb.Batch | None) -> list[float]:
    """Time of each layer of the chain for a whole batch (None: middle-sized work), on a rank of speed 1."""
    times: list[float] = []
    for module in job.modules:
        load = typical_load(module) if batch is None else batch_load(module, batch)
        times += layer_times_us(module, load)
    return times


def chain_bytes(job: Job) -> list[int]:
    """Static bytes of each layer of the chain."""
    return [run.static_bytes for module in job.modules for run in module.runs for _ in range(run.start, run.stop)]


def cut_chain(loads: Sequence[Sequence[float]]) -> list[int]:
    """Cut a chain into contiguous stages so that the largest is as small as can be, and those below it are even.

    With ``load[s][m, n]`` what layers m to n - 1 are on stage s, the largest of the stages 0 to s over the first n
    layers is ``best[s][n] = min over m <= n of max(best[s - 1][m], load[s][m, n])``. Of all cuts with the least largest
    stage, one with the least sum of squares is taken, by the same recursion.

    Parameters
    ----------
    loads
        [stages][layers] What each layer is on each stage, at least 0.

    Returns
    -------
    list of int
        For each stage its end; the last is the number of layers. Stages may be empty.
    """
    layers = len(loads[0])
    spans = [np.cumsum([0.0, *of_stage]) for of_stage in loads]
    sizes = [line[None, :] - line[:, None] for line in spans]
    forbidden = np.tri(layers + 1, k=-1, dtype=np.bool_)  # a stage ends where it starts, or later
    best = sizes[0][0]
    for size in sizes[1:]:
        best = np.where(forbidden, np.inf, np.maximum(best[:, None], size)).min(axis=0)
    limit = best[-1] * (1 + 1e-12)
    squares = np.where(sizes[0][0] <= limit, sizes[0][0] ** 2, np.inf)
    cuts = []
    for size in sizes[1:]:
        sums = np.where(forbidden | (size > limit), np.inf, squares[:, None] + size**2)
        cuts.append(sums.argmin(axis=0))
        squares = sums.min(axis=0)
    ends = [layers]
    for cut in reversed(cuts):
        ends.append(int(cut[ends[-1]]))
    return ends[::-1]


def place_stages(job: Job, ends: Sequence[int], placement: Sequence[int]) -> Stages:
    """Put the stages of a cut chain on their ranks: at most one chunk of each module a stage.

    Parameters
    ----------
    job
        The job.
    ends
        Of each stage, in layers of the chain.
    placement
        Rank of each stage.
    """
    partition, stage_of = pb.Partition(), list[tuple[int, ...]]()
    module_start = 0
    for module in job.modules:
        module_end = module_start + module.num_layers
        stages: list[int] = []
        for stage, (first, last) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            held = min(last, module_end) - max(first, module_start)
            if held > 0:
                chunk = partition.chunks.add(module=module.name, index=len(stages), rank=placement[stage])
                chunk.first_layer, chunk.num_layers = max(first, module_start) - module_start, held
                stages.append(stage)
        stage_of.append(tuple(stages))
        module_start = module_end
    return Stages(partition=partition, stage_of=tuple(stage_of))
