"""Sub-microbatches: grouping the instances of each microbatch for each module."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dip.work import Part

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dip.job import Job, Module
    from dip.planner.v1 import planner_pb2 as pb

Instance = tuple[int, int, int]
"""Sample, index and units of one instance."""

Pieces = list[dict[int, list[Instance]]]
"""The pieces of one microbatch: of each its instances, by module index."""


def instances_of(microbatch: pb.Microbatch, module: Module, samples: Iterable[int]) -> list[Instance]:
    """Instances that some samples of a microbatch have for a module, in their order."""
    found: list[Instance] = []
    listed, name = microbatch.samples, module.name
    for sample in samples:
        held = listed[sample].instances.get(name)
        if held is not None:
            found += [(sample, index, units) for index, units in enumerate(held.units[:])]
    return found


def make_part(module: Module, microbatch: int, instances: Sequence[Instance]) -> Part:
    """Sub-microbatch of the given instances."""
    samples, indexes, sizes = zip(*instances, strict=True)
    return Part(module=module.index, microbatch=microbatch, samples=samples, instances=indexes, sizes=sizes)


def pieces_of(job: Job, microbatch: pb.Microbatch) -> Pieces:
    """Return what memory can be saved by cutting apart: for each piece, its instances by module index.

    A sample's instances depend on each other and are one piece. Where it has work for the loss module alone they do
    not, and each is a piece of its own.
    """
    pieces: Pieces = []
    for sample, message in enumerate(microbatch.samples):
        instances, held = message.instances, {}
        for module in job.modules:
            of_module = instances.get(module.name)
            units_of = of_module.units[:] if of_module is not None else ()
            if units_of:
                held[module.index] = [(sample, index, units) for index, units in enumerate(units_of)]
        if len(held) == 1:
            pieces.extend({index: [instance]} for index, of_loss in held.items() for instance in of_loss)
        elif held:
            pieces.append(held)
    return pieces


def group_parts(job: Job, batch: pb.Batch, groups: Sequence[Sequence[Sequence[int]]]) -> list[Part]:
    """Sub-microbatches that keep groups of pieces together in every module.

    Parameters
    ----------
    job, batch
        What is trained, on what.
    groups
        For each microbatch, its pieces (see :func:`pieces_of`) in groups. Within a group a module's instances are cut
        only where the job asks for smaller sub-microbatches.
    """
    return join_pieces(job, [pieces_of(job, microbatch) for microbatch in batch.microbatches], groups)


def join_pieces(job: Job, pieces: Sequence[Pieces], groups: Sequence[Sequence[Sequence[int]]]) -> list[Part]:
    """As :func:`group_parts`, where the pieces of each microbatch are known."""
    parts: list[Part] = []
    for j, (of_microbatch, joined) in enumerate(zip(pieces, groups, strict=True)):
        for group in joined:
            for module in job.modules:
                listed = [instance for piece in group for instance in of_microbatch[piece].get(module.index, ())]
                parts.extend(make_part(module, j, cut) for cut in _cut(listed, module.max_units))
    return parts


def _cut(instances: Sequence[Instance], max_units: int) -> Iterable[list[Instance]]:
    """Consecutive instances of at most ``max_units`` together (0: no limit); a larger instance stands alone."""
    current: list[Instance] = []
    held = 0
    for instance in instances:
        if current and max_units and held + instance[2] > max_units:
            yield current
            current, held = [], 0
        current.append(instance)
        held += instance[2]
    if current:
        yield current
