"""Sub-microbatches as the paper makes them: sizes by its 95% rule, then even parts of every microbatch.

B_i is the smallest sub-microbatch of module i that keeps 95% of the module's best throughput; a microbatch with N_i
units of work for it is cut into ceil(N_i / B_i) parts.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dip.parts import instances_of, make_part

from planner_service.costs.efficient import efficient_units

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dip.job import Job
    from dip.parts import Instance
    from dip.planner.v1 import planner_pb2 as pb
    from dip.work import Part


def efficient_sizes(spec: pb.JobSpec, job: Job, batch: pb.Batch) -> list[int]:
    """B_i of each module in units: whole instances of the module's mean size, at most what the job asks for."""
    sizes: list[int] = []
    for module, message in zip(job.modules, spec.model.modules, strict=True):
        everything = (instances_of(mb, module, range(len(mb.samples))) for mb in batch.microbatches)
        units = [size for instances in everything for _, _, size in instances] or [1]
        typical = sum(size * size for size in units) / sum(units)
        efficient = efficient_units(message, module, instance_units=typical, backward=not batch.forward_only)
        mean = sum(units) / len(units)
        size = math.ceil(math.ceil(efficient / mean - 1e-9) * mean)
        sizes.append(min(size, module.max_units) if module.max_units else size)
    return sizes


def even_parts(job: Job, batch: pb.Batch, sizes: Sequence[int]) -> list[Part]:
    """Sub-microbatches of a batch: by microbatch, then by module, inputs first.

    Parameters
    ----------
    job, batch
        What is trained, on what.
    sizes
        B_i of each module.
    """
    parts: list[Part] = []
    for j, microbatch in enumerate(batch.microbatches):
        for module, size in zip(job.modules, sizes, strict=True):
            instances = instances_of(microbatch, module, range(len(microbatch.samples)))
            if instances:
                units = sum(one[2] for one in instances)
                groups = _limited(instances, math.ceil(units / size), module.max_units)
                parts.extend(make_part(module, j, group) for group in groups)
    return parts


def _limited(instances: Sequence[Instance], num_parts: int, most: int) -> list[list[Instance]]:
    """Even parts, as many more as keep each within ``most`` units (0: no limit); a larger instance stands alone."""
    for many in range(min(num_parts, len(instances)), len(instances)):
        groups = even_groups(instances, many)
        if not most or all(len(group) == 1 or sum(one[2] for one in group) <= most for group in groups):
            return groups
    return [[instance] for instance in instances]


def even_groups(instances: Sequence[Instance], num_groups: int) -> list[list[Instance]]:
    """Consecutive instances in at most ``num_groups`` groups of about equal units: each where its middle lies."""
    total = sum(one[2] for one in instances)
    groups: list[list[Instance]] = [[] for _ in range(num_groups)]
    before = 0
    for instance in instances:
        # floor((before + units / 2) / (total / groups)), in whole numbers
        groups[(2 * before + instance[2]) * num_groups // (2 * total)].append(instance)
        before += instance[2]
    return [group for group in groups if group]
