"""Sub-microbatches: grouping the instances of each microbatch for each module."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dip.work import Part

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dip.job import Job, Module
    from dip.planner.v1 import planner_pb2 as pb


def instances_of(microbatch: pb.Microbatch, module: Module, samples: Iterable[int]) -> list[tuple[int, int, int]]:
    """Instances (sample, index, units) that some samples of a microbatch have for a module, in their order."""
    found: list[tuple[int, int, int]] = []
    for sample in samples:
        held = microbatch.samples[sample].instances
        if module.name in held:
            found.extend((sample, index, units) for index, units in enumerate(held[module.name].units))
    return found


def make_part(module: Module, microbatch: int, instances: Sequence[tuple[int, int, int]]) -> Part:
    """Sub-microbatch of the given instances (sample, index, units)."""
    samples, indexes, sizes = zip(*instances, strict=True)
    return Part(module=module.index, microbatch=microbatch, samples=samples, instances=indexes, sizes=sizes)


def group_parts(job: Job, batch: pb.Batch, groups: Sequence[Sequence[Sequence[int]]]) -> list[Part]:
    """Sub-microbatches that keep groups of samples together in every module.

    Parameters
    ----------
    job, batch
        What is trained, on what.
    groups
        For each microbatch, its samples in groups. Within a group a module's instances are cut only where the job
        asks for smaller sub-microbatches.
    """
    parts: list[Part] = []
    for j, (microbatch, of_microbatch) in enumerate(zip(batch.microbatches, groups, strict=True)):
        for samples in of_microbatch:
            for module in job.modules:
                listed = instances_of(microbatch, module, samples)
                parts.extend(make_part(module, j, cut) for cut in _cut(listed, module.max_units))
    return parts


def _cut(instances: Sequence[tuple[int, int, int]], max_units: int) -> Iterable[list[tuple[int, int, int]]]:
    """Consecutive instances of at most ``max_units`` together (0: no limit); a larger instance stands alone."""
    current: list[tuple[int, int, int]] = []
    held = 0
    for instance in instances:
        if current and max_units and held + instance[2] > max_units:
            yield current
            current, held = [], 0
        current.append(instance)
        held += instance[2]
    if current:
        yield current
