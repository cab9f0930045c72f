"""Optimus-like: encoders in segments of their own, their forwards all first, their backwards last (Feng et al. 2024).

In between the backbone, which is the module that computes the loss, runs 1F1B as if it were alone. The encoders'
activations of the whole batch are held all the while: this is what it pays with.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from dip.job import Job
from dip.lowering import Phase

from planner_service.baselines.drafts import Candidate
from planner_service.baselines.interleaved import interleaved_1f1b
from planner_service.baselines.order_table import table_orders
from planner_service.baselines.separated import separated_stages

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dip.lowering import Task
    from dip.planner.v1 import planner_pb2 as pb
    from dip.work import Work


def optimus(spec: pb.JobSpec, batch: pb.Batch) -> Iterator[Candidate]:
    """Candidates with the backbone in one segment and, where it has the layers, in two."""
    job = Job.from_spec(spec)
    backbone = job.modules[-1]
    for segments in (1, 2) if backbone.num_layers >= 2 * job.ranks else (1,):
        of_modules = [1] * (len(job.modules) - 1) + [segments]
        for stages in separated_stages(job, batch, of_modules):
            order = partial(_orders, backbone_stages=stages.stage_of[-1], segments=segments)
            yield Candidate(partition=stages.partition, order=order)


def _orders(work: Work, backbone_stages: Sequence[int], segments: int) -> list[list[Task]]:
    """For each rank the encoders' forwards, the backbone's 1F1B, and the encoders' backwards."""
    encoders = range(len(work.job.modules) - 1)
    first = len(encoders) * work.job.ranks
    stage_of: list[Sequence[int]] = [()] * len(encoders)
    stage_of.append([stage - first for stage in backbone_stages])
    forwards: list[list[Task]] = [[] for _ in range(work.job.ranks)]
    backwards: list[list[Task]] = [[] for _ in range(work.job.ranks)]
    for cells in _by_module(work, encoders):
        for cell in cells:
            forwards[work.cell_chunk[cell].rank].append((Phase.FORWARD, cell))
    for cells in reversed(_by_module(work, encoders)):
        for cell in cells:
            if work.has_backward(cell):
                backwards[work.cell_chunk[cell].rank].append((Phase.BACKWARD, cell))
    middle = table_orders(work, stage_of, partial(interleaved_1f1b, stages_of_rank=segments))
    return [[*before, *between, *after] for before, between, after in zip(forwards, middle, backwards, strict=True)]


def _by_module(work: Work, modules: Sequence[int]) -> list[list[int]]:
    """Cells of each of these modules, by microbatch."""
    cells: list[list[int]] = [[] for _ in modules]
    for cell, part in enumerate(work.cell_part):
        if work.parts[part].module in modules:
            cells[work.parts[part].module].append(cell)
    for of_module in cells:
        of_module.sort(key=lambda cell: work.parts[work.cell_part[cell]].microbatch)
    return cells
